"""A journal in memory with the same ports as the real one, and with faults where storage has them.

`MemoryStorage` is the disk that outlives processes; each `MemoryJournal` is one process's view of it, with a place in the
control log of its own, so that two coordinators can race, and one can come back late.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from spark_queue.core.creation import first_records
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, MessageTypeDefinition
from spark_queue.core.log_tail import LogTail
from spark_queue.core.message_files.followed_table import FollowedTable
from spark_queue.core.message_files.relocation import FileFinding
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Followed, MergedFile, MovedRows, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.journal.log_looks import SILENT_MS
from spark_queue.journal.message_log import added_file
from spark_queue.ports import AddedFile, ControlLog, MessageLogEntry, PulledFiles
from tests.scenario.traits import MemoryTraits, PublishedMessage

#: Called with the name of a storage step and "before" or "after"; may raise `OSError` (the step failed before it had an
#: effect, or its reply was lost after it), or `LateCommitError` before a commit.
Hook = Callable[[str, str], None]


class LateCommitError(OSError):
    """Raised by a hook before a commit: the caller hears of a failure, and the commit lands later, if it still can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    epoch: int
    records: tuple[Record, ...]


class LateCommit:
    """A commit on its way to the storage."""

    def __init__(self, storage: MemoryStorage, version: int, commit: _Commit) -> None:
        self._storage = storage
        self._version = version
        self._commit = commit

    def land(self) -> bool:
        """Let it arrive; tell whether its version was still free."""
        return self._storage.swap(self._version, self._commit)


class MemoryStorage:
    """What stays when processes end.

    Parameters
    ----------
    definitions : Definitions or None
        What the journal is created with.
    at_ms : int
        Time of its creation, in milliseconds since 1970 UTC.
    """

    path = "memory"

    def __init__(self, definitions: Definitions | None = None, *, at_ms: int = 0) -> None:
        definitions = definitions or parsing.parse({})
        self.journal_id = str(uuid.uuid4())
        #: Set by a test to make steps fail; see `Hook`.
        self.hook: Hook = _no_fault
        #: Commits on their way, oldest first.
        self.late: list[LateCommit] = []
        self.traits = MemoryTraits()
        self.entries: dict[str, list[MessageLogEntry]] = {}
        records = first_records(self.journal_id, definitions, self.traits, now_ms=at_ms)
        self.commits = [_Commit(epoch=0, records=tuple(records))]
        for message_type in definitions.message_types:
            self.create_table(message_type)

    @property
    def version(self) -> int:
        """Version of the control log's head."""
        return len(self.commits) - 1

    def swap(self, version: int, commit: _Commit) -> bool:
        """Write a commit as `version` if that version is the next one; tell whether it was."""
        if version != len(self.commits):
            return False
        self.commits.append(commit)
        return True

    @contextmanager
    def step(self, name: str, *, late: LateCommit | None = None) -> Iterator[None]:
        """Take one storage step between the hook's two calls, whose failures become storage failures.

        Parameters
        ----------
        name : str
            What the hook is told.
        late : LateCommit or None
            What a `LateCommitError` sends on its way.

        Raises
        ------
        JournalError
            STORE_FAILED, as the hook decides.
        """
        try:
            self.hook(name, "before")
        except OSError as failure:
            if late is not None and isinstance(failure, LateCommitError):
                self.late.append(late)
            raise self._failure(name, failure) from None
        yield
        try:
            self.hook(name, "after")
        except OSError as failure:
            raise self._failure(name, failure) from None

    def _failure(self, name: str, failure: OSError) -> JournalError:
        next_step = "Look what was stored, then try again."
        return JournalError("STORE_FAILED", path=self.path, doing=name, reason=f"{failure}.", next_step=next_step)

    def create_table(self, message_type: str) -> None:
        """Make a message type's log; its first entry adds nothing."""
        self.entries.setdefault(message_type, [MessageLogEntry(version=0, token=uuid.uuid4().hex)])

    def publish(self, message_type: str, messages: Sequence[PublishedMessage]) -> None:
        """Publish messages as one commit of one file."""
        log = self.entries[message_type]
        path = f"{uuid.uuid4().hex}.parquet"
        self.traits.add(path, messages)
        topics = [message.topic for message in messages]
        expires = [message.expires_at_ms for message in messages if message.expires_at_ms is not None]
        added = AddedFile(
            path=path,
            row_count=len(messages),
            topic_min=min(topics),
            topic_max=max(topics),
            expires_null_count=len(messages) - len(expires),
            expires_min_ms=min(expires, default=None),
            expires_max_ms=max(expires, default=None),
        )
        log.append(MessageLogEntry(version=len(log), token=uuid.uuid4().hex, added=(added,)))

    def merge(self, message_type: str, files: Sequence[Segment]) -> None:
        """Put the messages of files, neighbours in the log, into one, as compaction does; the old files are lost."""
        parts = [
            MovedRows(path=file.path, first_row=file.first_row, row_count=file.row_count, bookmark=file.first) for file in files
        ]
        merged = MergedFile(path=f"{uuid.uuid4().hex}.parquet", parts=tuple(parts))
        self.traits.add(merged.path, [message for file in files for message in self.traits.messages(file)])
        log = self.entries[message_type]
        log.append(MessageLogEntry(version=len(log), token=uuid.uuid4().hex, merged=(merged,)))
        for file in files:
            self.traits.remove(file.path)


class MemoryControlLog:
    """`ports.ControlLog` of one process."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage
        self._version = -1

    def load(self) -> LogTail:
        """Refresh and give every record in order, and take the head as the place to append at."""
        with self._storage.step("control.load"):
            self._version = self._storage.version
            return LogTail([record for commit in self._storage.commits for record in commit.records])

    def append(self, records: Sequence[Record], *, epoch: int) -> None:
        """Commit numbered records by one swap at the head, carrying `epoch`, and check that it holds.

        Raises
        ------
        CoordinatorError
            COORDINATOR_DEPOSED.
        JournalError
            STORE_FAILED, as the hook decides.
        """
        commit = LateCommit(self._storage, self._version + 1, _Commit(epoch=epoch, records=tuple(records)))
        with self._storage.step("control.append", late=commit):
            if not commit.land():
                raise self._deposed(epoch, f"version {self._version + 1} was committed by another")
            self._version += 1
        self.check(epoch=epoch)

    def check(self, *, epoch: int) -> None:
        """Refresh and check that the head is still the own last commit and the epoch the own one.

        Raises
        ------
        CoordinatorError
            COORDINATOR_DEPOSED.
        JournalError
            STORE_FAILED, as the hook decides.
        """
        with self._storage.step("control.check"):
            if self._storage.version != self._version:
                raise self._deposed(epoch, f"the log is at version {self._storage.version} instead of {self._version}")
            if self._storage.commits[-1].epoch != epoch:
                raise self._deposed(epoch, f"the log carries epoch {self._storage.commits[-1].epoch}")

    def _deposed(self, epoch: int, reason: str) -> CoordinatorError:
        return CoordinatorError("COORDINATOR_DEPOSED", epoch=epoch, path=self._storage.path, reason=reason)


class MemoryMessageLog:
    """`ports.MessageLog` of one process."""

    silent_ms: int = SILENT_MS

    def __init__(self, storage: MemoryStorage, message_type: str) -> None:
        self._storage = storage
        self._message_type = message_type

    def recover(self, *, version: int, token: str) -> None:
        """Check that `version`, entered last (-1 for none), still is the commit `token`.

        Raises
        ------
        JournalError
            JOURNAL_DAMAGED, or STORE_FAILED as the hook decides.
        """
        with self._storage.step("messages.recover"):
            log = self._storage.entries[self._message_type]
            if version >= 0 and (version >= len(log) or log[version].token != token):
                what, reason = f"version {version} is not the one that entered", "The log was cut."
                raise JournalError("JOURNAL_DAMAGED", path=self._storage.path, what=what, reason=reason)

    def tail(self, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        """Yield the versions after `after_version`, in order, up to the head; there are no gaps here.

        Raises
        ------
        JournalError
            STORE_FAILED, as the hook decides.
        """
        with self._storage.step("messages.tail"):
            found = self._storage.entries[self._message_type][after_version + 1 :]
        yield from found


class MemoryJournal:
    """`ports.Journal` of one process.

    Parameters
    ----------
    storage : MemoryStorage
        Shared by all processes of a test.
    """

    control: ControlLog

    def __init__(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.path = storage.path
        self.journal_id = storage.journal_id
        self.control = MemoryControlLog(storage)
        self.traits = storage.traits

    def messages(self, message_type: str, followed: FollowedTable | None = None) -> MemoryMessageLog:
        """Return the log of a message type."""
        assert followed is None, "there are no tables here"
        return MemoryMessageLog(self.storage, message_type)

    def check_message_table(self, message_type: str, columns: str, *, is_unused: bool = False) -> None:
        """Do nothing: a list takes any columns."""

    def create_message_table(self, message_type: str, columns: str, *, is_unused: bool = False) -> None:
        """Make the log of a message type; does nothing when there is one."""
        with self.storage.step("messages.create"):
            self.storage.create_table(message_type)

    def look_at_table(
        self, message_type: MessageTypeDefinition, known: FollowedTable | None, before: MessageTypeDefinition | None
    ) -> Followed | None:
        """Refuse any table: there are none here."""
        del known, before
        facts = {"table": str(message_type.table), "message_type": message_type.name, "place": "", "next_step": "Use a disk."}
        raise JournalError("TABLE_UNSUPPORTED", reason="a journal in memory sees no tables.", **facts)

    def look_further(self, message_type: MessageTypeDefinition, known: FollowedTable, version: int | None) -> Followed:
        """Refuse: nothing is followed here."""
        raise AssertionError((message_type, known, version))

    def append_pulled(self, files: PulledFiles, *, after_version: int, at_ms: int) -> bool:
        """Commit files of pulled messages right after a version; returns whether that was the head."""
        del at_ms
        with self.storage.step("messages.append"):
            log = self.storage.entries[files.message_type]
            if len(log) != after_version + 1:
                return False
            added = tuple(
                replace(added_file(file.path, file.stats), origins=file.origins, publishers=file.publishers, clashes=file.clashes)
                for file in files.files
            )
            version, token = after_version + 1, uuid.uuid4().hex
            log.append(MessageLogEntry(version=version, token=token, added=added, instances=dict(files.instances)))
            return True

    def absent_files(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        raise AssertionError("no message type follows a table here")

    def look_for_files(self, queue: str, rows: BitMap64) -> None:
        raise AssertionError("no message type follows a table here")

    def upkeep(self, *, epoch: int, state: JournalState, now_ms: int) -> Sequence[FileFinding]:
        """Do nothing: a list needs no checkpoints. The hook hears of it."""
        with self.storage.step("upkeep"):
            return ()


def _no_fault(step: str, moment: str) -> None:
    """Let every step succeed."""
