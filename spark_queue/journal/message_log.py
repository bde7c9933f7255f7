"""The log of one message type, read forward from `_delta_log/N.json` itself: the only source of order (DESIGN 4).

The meaning of an entry of a message log, read strictly: a writer of messages of a type may write anything into its log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from deltalake import DeltaTable
from msgspec import Meta, Struct

from spark_queue.core.definitions.keys import DURATION_LIMIT_MS
from spark_queue.core.records import MergedFile, MovedRows
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.damage import damaged, gap
from spark_queue.journal.entry_parts import Mark, NewFile
from spark_queue.journal.entry_writing import create_entry
from spark_queue.journal.folder import PATH
from spark_queue.journal.log_entry import (
    DEFINITIONS_TXN,
    PUBLISHER_TXN,
    LogEntry,
    OddEntryError,
    TornEntryError,
    check_mark,
    read_entry,
    topic_transaction,
)
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.log_looks import SILENT_MS
from spark_queue.journal.repair import repair_head
from spark_queue.journal.store import Store, TooLargeError, log_key, messages_key
from spark_queue.ports import AddedFile, MessageLogEntry, PulledFiles

#: Rows of one file, far more than a commit of messages ever has, and numbers of 64 bits that records hold.
_Rows = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Bookmark = Annotated[int, Meta(ge=0, le=2**62)]
_Delay = Annotated[int, Meta(ge=1, le=DURATION_LIMIT_MS)]
_Time = Annotated[int, Meta(ge=0, le=2**46)]
_Sequence = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

_Path = Annotated[str, Meta(pattern=rf"^{PATH.pattern}\Z")]


class NotExplainedError(Exception):
    """A commit removed or moved rows, and its mark does not say which."""


class _Bounds(Struct):
    topic: str
    expires_at: str | None = None


class _Nulls(Struct):
    expires_at: _Rows


class _Statistics(Struct):
    """Delta's, of a message file of ours."""

    numRecords: _Rows  # noqa: N815 - Delta's name
    minValues: _Bounds  # noqa: N815 - Delta's name
    maxValues: _Bounds  # noqa: N815 - Delta's name
    nullCount: _Nulls  # noqa: N815 - Delta's name


class _Add(Struct):
    path: str
    stats: str | None = None
    dataChange: bool = True  # noqa: N815 - Delta's name


class _Own(Struct):
    """The path of a file of ours."""

    path: _Path


class _Counted(Struct):
    """The statistics of a stranger's file, as far as they count; `UNSET` where there are none."""

    numRecords: _Rows | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 - Delta's name


class _Moved(Struct, rename={"parts": "from"}):
    path: _Path
    parts: list[tuple[_Path, _Rows, _Rows, _Bookmark]]


class _Mark(Struct):
    """Our part of a commitInfo, as far as a message log is read by it (PROTOCOL.md, section 8)."""

    token: str = ""
    first_sequence: _Sequence | None = None
    last_sequence: _Sequence | None = None
    deliver_after_ms: _Delay | None = None
    due_at_ms: list[_Time | None] | None = None
    origin: list[tuple[tuple[_Rows, _Rows, str, _Bookmark], ...]] | None = None
    instances: dict[str, str] = {}
    groups: dict[str, str] = {}
    publishers: list[dict[str, tuple[_Sequence, _Sequence]]] | None = None
    clashes: list[tuple[tuple[_Rows, _Rows, str, _Sequence], ...]] = []
    moved: list[_Moved] = []
    retired: list[_Path] = []


def understand(entry: LogEntry) -> MessageLogEntry:
    """Return the meaning of an entry."""
    adds = [msgspec.convert(add, _Add) for add in entry.adds]
    if entry.removes or any(not add.dataChange for add in adds):
        return _understand_change(entry, adds)
    mark = msgspec.convert(entry.mark, _Mark)
    added: list[AddedFile] = []
    foreign: list[str] = []
    foreign_rows = 0
    for number, add in enumerate(adds):
        counted = _counted(add)
        if mark.token and counted.numRecords is not msgspec.UNSET:
            path = msgspec.convert({"path": add.path}, _Own).path
            file = added_file(path, msgspec.json.decode(add.stats or ""))
            added.append(_checked(replace(file, **_of_mark(entry, mark, number))))
        else:
            foreign.append(add.path)
            foreign_rows += counted.numRecords or 0
    return MessageLogEntry(
        version=entry.version, token=mark.token, committed_at_ms=entry.committed_at_ms, added=tuple(added),
        foreign_paths=tuple(foreign), foreign_rows=foreign_rows, instances=mark.instances, groups=mark.groups,
        definitions=entry.transactions.get(DEFINITIONS_TXN, 0), alters_table=entry.changes_table,
    )  # fmt: skip


def _understand_change(entry: LogEntry, adds: list[_Add]) -> MessageLogEntry:
    """Read a commit that removes or moves rows: only the coordinator makes such, and marks them."""
    try:
        mark = msgspec.convert(entry.mark, _Mark)
    except msgspec.ValidationError:
        raise NotExplainedError from None
    merged = tuple(MergedFile(path=file.path, parts=tuple(MovedRows(*part) for part in file.parts)) for file in mark.moved)
    removed = {remove.get("path") for remove in entry.removes}
    replaced = {part.path for file in merged for part in file.parts}
    explained = bool(mark.token) and removed == replaced | set(mark.retired)
    if not explained or [add.path for add in adds] != [file.path for file in merged]:
        raise NotExplainedError
    return MessageLogEntry(
        version=entry.version, token=mark.token, committed_at_ms=entry.committed_at_ms, merged=merged,
        retired_paths=tuple(mark.retired),
    )  # fmt: skip


def _of_mark(entry: LogEntry, mark: _Mark, number: int) -> dict[str, Any]:
    """Return the facts of the rows of one file of a commit by its mark: their delay, origin, and publishers' numbers."""
    if mark.origin is None:
        # All rows of a commit are of one publisher. Its numbers are those of the whole, as they were given.
        numbers = (mark.first_sequence, mark.last_sequence)
        names = [name.removeprefix(PUBLISHER_TXN) for name in entry.transactions if name.startswith(PUBLISHER_TXN)]
        delay = {} if mark.deliver_after_ms is None else {"deliver_after_ms": mark.deliver_after_ms}
        return delay | ({"publishers": dict.fromkeys(names, numbers)} if None not in numbers else {})
    found: dict[str, Any] = {"origins": mark.origin[number]}
    if mark.due_at_ms is not None:
        found["due_at_ms"] = mark.due_at_ms[number]
    if mark.publishers is not None:
        found |= {"publishers": mark.publishers[number], "clashes": mark.clashes[number]}
    return found


def _counted(add: _Add) -> _Counted:
    try:
        return msgspec.json.decode(add.stats or "{}", type=_Counted)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return _Counted()


def added_file(path: str, statistics: Mapping[str, Any]) -> AddedFile:
    """Return the message file of an `add` action, by its statistics."""
    known = msgspec.convert(statistics, _Statistics)
    return AddedFile(
        path=path,
        row_count=known.numRecords,
        topic_min=known.minValues.topic,
        topic_max=known.maxValues.topic,
        expires_null_count=known.nullCount.expires_at,
        expires_min_ms=_instant_ms(known.minValues.expires_at),
        expires_max_ms=_instant_ms(known.maxValues.expires_at),
    )


def _checked(file: AddedFile) -> AddedFile:
    """Refuse statistics that contradict each other, and parts of a file that it does not have."""
    expires = (file.expires_min_ms, file.expires_max_ms)
    if file.expires_null_count > file.row_count or (None in expires and file.expires_null_count != file.row_count):
        raise ValueError(f"{file.expires_null_count} of {file.row_count} messages do not expire, and the others from {expires}")
    for first, rows, *_ in (*file.origins, *file.clashes):
        if first + rows > file.row_count:
            raise ValueError(f"rows {first} to {first + rows} of {file.row_count}")
    return file


def _instant_ms(text: str | None) -> int | None:
    return None if text is None else round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


#: Most bytes of an entry, far more than a commit of messages ever has.
ENTRY_BYTES = 256 * 1024 * 1024


class DeltaMessageLog:
    """`ports.MessageLog` on the Delta table of a message type.

    `is_durable` returns whether commits must survive power loss. It is asked at every entry, which then is forced to the disk
    before anybody builds on it.
    """

    def __init__(self, store: Store, message_type: str, is_durable: Callable[[], bool]) -> None:
        self._store = store
        self._key = messages_key(message_type)
        self._is_durable = is_durable
        #: To ask for the numbers of publishers; opened by the first that is pulled.
        self._table: DeltaTable | None = None

    @property
    def silent_ms(self) -> int:
        """See `ports.MessageLog`."""
        return SILENT_MS

    def tail(self, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        """See `ports.MessageLog`; to find gaps a local store reads the whole folder of the log."""
        version = after_version + 1
        while (entry := self._entry(version) if finds_gaps else self._read(version)) is not None:
            if self._is_durable():
                self._store.sync([log_key(self._key, version)])
            yield self._understood(entry)
            version += 1

    def append(self, files: PulledFiles, *, after_version: int, at_ms: int) -> bool:
        """See `ports.JournalPort.append_pulled`."""
        added = [
            NewFile(path=file.path, size_bytes=file.size_bytes, modified_ms=at_ms, stats=dict(file.stats)) for file in files.files
        ]
        # For each file its rows by origin, and the names of those instances by UUID.
        pulled: dict[str, Any] = {
            "origin": [list(map(list, file.origins)) for file in files.files],
            "instances": dict(files.instances),
        }
        if files.groups:
            pulled["groups"] = dict(files.groups)
        if any(file.due_at_ms is not None for file in files.files):
            pulled["due_at_ms"] = [file.due_at_ms for file in files.files]
        raised: Mapping[str, int] = {}
        if files.publishers:
            pulled["publishers"] = [{name: list(found) for name, found in file.publishers.items()} for file in files.files]
            pulled["clashes"] = [list(map(list, file.clashes)) for file in files.files]
            found = self._raised(files, after_version)
            if found is None:
                return False
            raised = found
        mark = Mark(writer="replicator", pulled=pulled)
        durable = self._is_durable()
        if durable:
            # The files themselves were forced to the disk as they were written.
            self._store.sync([log_key(self._key, after_version)])
        with self._store.failures(f"committing to {self._key}"):
            # No epoch: a deposed coordinator appends to the log that it has seen whole, or not at all.
            created = create_entry(
                self._store, self._key, after_version + 1, added, mark=mark, epoch=None, transactions=raised, at_ms=at_ms
            )
        if created is not None and durable:
            self._store.sync([log_key(self._key, after_version + 1)])
        return created is not None

    def _raised(self, files: PulledFiles, version: int) -> dict[str, int] | None:
        """Return the new highest numbers of the pulled publishers, where they rise; None where `version` is not the head."""
        # A failure leaves no half-read table behind.
        table, self._table = self._table, None
        if table is None:
            table = delta.open_table(self._store, self._key)
        else:
            delta.refresh(self._store, self._key, table)
        self._table = table
        if table is None or table.version() != version:
            return None
        highest = {f"{PUBLISHER_TXN}{name}": last for name, (_, last) in files.publishers.items()}
        for file in files.files:
            for topic, publishers in file.topics.items():
                for name, last in publishers.items():
                    transaction = topic_transaction(topic, name)
                    highest[transaction] = max(highest.get(transaction, last), last)
        known = {name: table.transaction_version(name) for name in highest}
        return {name: last for name, last in highest.items() if (found := known[name]) is None or last > found}

    def recover(self, *, version: int, token: str) -> None:
        """See `ports.MessageLog`, and `recovery` of a torn head entry; raises STORE_FAILED, too."""
        repair_head(self._store, self._key)
        if version < 0:
            return
        entry = self._read(version)
        if entry is None or entry.token != token:
            found = "missing" if entry is None else f"another commit ({entry.operation})"
            reason = "The control log has entered its messages, so bookmarks would change their meaning."
            raise damaged(self._store, f"version {version} of {self._key} is {found}", reason)

    def _entry(self, version: int) -> LogEntry | None:
        entry = self._read(version)
        if entry is not None or not versions_after(self._store, self._key, version):
            return entry
        # Listing and reading are two moments: a commit may have landed between them. Only a second look makes a gap.
        entry = self._read(version)
        if entry is None:
            raise gap(self._store, self._key, version)
        return entry

    def _read(self, version: int) -> LogEntry | None:
        try:
            entry = read_entry(self._store, self._key, version, most_bytes=ENTRY_BYTES)
        except (OddEntryError, TooLargeError) as reason:
            raise self._odd(version, reason) from None
        except TornEntryError as reason:
            what = f"{log_key(self._key, version)} is not whole"
            raise damaged(self._store, what, self._store.reason(reason)) from None
        if entry is not None:
            check_mark(entry, path=self._store.path)
        return entry

    def _understood(self, entry: LogEntry) -> MessageLogEntry:
        """Return the meaning of an entry; one that cannot be made out keeps the type from being read further, and nothing else."""
        try:
            return understand(entry)
        except NotExplainedError:
            # Rows that have bookmarks were moved or removed, and nobody knows which.
            path, previous = self._store.uri(self._key), entry.version - 1
            facts = {"version": entry.version, "operation": entry.operation[:200], "previous": previous}
            raise JournalError("JOURNAL_REWRITTEN", path=path, **facts) from None
        except Exception as reason:  # noqa: BLE001 - a writer of messages of this type chose its content
            raise self._odd(entry.version, reason) from None

    def _odd(self, version: int, reason: Exception) -> JournalError:
        what = f"{log_key(self._key, version)} has content that no commit of messages has"
        return damaged(self._store, what, f"{type(reason).__name__}: {self._store.reason(reason)}")
