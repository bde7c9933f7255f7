"""The log of one message type, read forward from `_delta_log/N.json` itself: the only source of order (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deltalake import DeltaTable

from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.delta import Mark, NewFile
from spark_queue.journal.layout import Store, TooLargeError, log_key, messages_key
from spark_queue.journal.log_entry import PUBLISHER_TXN, LogEntry, OddEntryError, TornEntryError, create_entry, read_entry
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.message_entry import NotExplainedError, understand
from spark_queue.journal.recovery import repair_head
from spark_queue.ports import MessageLogEntry, PulledFiles

#: Most bytes of an entry, far more than a commit of messages ever has.
ENTRY_BYTES = 256 * 1024 * 1024


class DeltaMessageLog:
    """`ports.MessageLog` on the Delta table of a message type.

    `is_durable` tells whether commits must survive power loss. It is asked at every entry, which then is forced to the disk
    before anybody builds on it.
    """

    def __init__(self, store: Store, message_type: str, is_durable: Callable[[], bool]) -> None:
        self._store = store
        self._key = messages_key(message_type)
        self._is_durable = is_durable
        #: To ask for the numbers of publishers; opened by the first that is pulled.
        self._table: DeltaTable | None = None

    def tail(self, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        """See `ports.MessageLog`; to find gaps a local store reads the whole folder of the log, however little is beyond its head.

        Raises
        ------
        JournalError
            STORE_FAILED, too.
        """
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
            # No epoch: one who was deposed appends to what it has seen whole, or not at all.
            created = create_entry(
                self._store, self._key, after_version + 1, added, mark=mark, epoch=None, transactions=raised, at_ms=at_ms
            )
        if created and durable:
            self._store.sync([log_key(self._key, after_version + 1)])
        return created

    def _raised(self, files: PulledFiles, version: int) -> dict[str, int] | None:
        """Return what the pulled publishers' highest numbers become, where they rise; None where `version` is not the head."""
        # What fails leaves no table behind that is half read.
        table, self._table = self._table, None
        if table is None:
            table = delta.open_table(self._store, self._key)
        else:
            delta.refresh(self._store, self._key, table)
        self._table = table
        if table is None or table.version() != version:
            return None
        highest = {f"{PUBLISHER_TXN}{name}": last for name, (_, last) in files.publishers.items()}
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
            raise delta.damaged(self._store, f"version {version} of {self._key} is {found}", reason)

    def _entry(self, version: int) -> LogEntry | None:
        entry = self._read(version)
        if entry is not None or not versions_after(self._store, self._key, version):
            return entry
        # Listing and reading are two moments: a commit may have landed between them. Only a second look makes a gap.
        entry = self._read(version)
        if entry is None:
            raise JournalError("LOG_GAP", path=self._store.uri(self._key), version=version)
        return entry

    def _read(self, version: int) -> LogEntry | None:
        try:
            return read_entry(self._store, self._key, version, most_bytes=ENTRY_BYTES)
        except (OddEntryError, TooLargeError) as reason:
            raise self._odd(version, reason) from None
        except TornEntryError as reason:
            raise delta.damaged(self._store, f"version {version} of {self._key} is not whole", self._store.reason(reason)) from None

    def _understood(self, entry: LogEntry) -> MessageLogEntry:
        """Return what an entry says; whatever cannot be made out keeps the type from being read further, and nothing else."""
        try:
            return understand(entry)
        except NotExplainedError:
            # Rows that have bookmarks were moved or removed, and nobody knows which.
            path, previous = self._store.uri(self._key), entry.version - 1
            facts = {"version": entry.version, "operation": entry.operation[:200], "previous": previous}
            raise JournalError("JOURNAL_REWRITTEN", path=path, **facts) from None
        except Exception as reason:  # noqa: BLE001 - whoever may write messages of this type chose what is in it
            raise self._odd(entry.version, reason) from None

    def _odd(self, version: int, reason: Exception) -> JournalError:
        what = f"version {version} of {self._key} says what no commit of messages says"
        return delta.damaged(self._store, what, f"{type(reason).__name__}: {self._store.reason(reason)}")
