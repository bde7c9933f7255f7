"""The log of one message type, read forward from `_delta_log/N.json` itself: the only source of order (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from deltalake import DeltaTable

from spark_queue.core.message_files.publishers import sequence_ranges
from spark_queue.core.message_files.relocation import MergedFile
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.delta import Mark, NewFile
from spark_queue.journal.layout import Store, log_key, messages_key
from spark_queue.journal.log_entry import PUBLISHER_TXN, LogEntry, TornEntryError, create_entry, read_entry
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.recovery import repair_head
from spark_queue.ports import AddedFile, MessageLogEntry, PulledFiles


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
            yield self._interpret(entry)
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
            return read_entry(self._store, self._key, version)
        except TornEntryError as reason:
            raise delta.damaged(self._store, f"version {version} of {self._key} is not whole", self._store.reason(reason)) from None

    def _interpret(self, entry: LogEntry) -> MessageLogEntry:
        if entry.removes or any(not add.get("dataChange", True) for add in entry.adds):
            return self._interpret_change(entry)
        added: list[AddedFile] = []
        foreign: list[str] = []
        foreign_rows = 0
        for number, add in enumerate(entry.adds):
            statistics = _statistics(add)
            if entry.token and "numRecords" in statistics:
                added.append(replace(added_file(add["path"], statistics), **_of_mark(entry, number)))
            else:
                foreign.append(add["path"])
                foreign_rows += statistics.get("numRecords", 0)
        return MessageLogEntry(
            version=entry.version, token=entry.token, committed_at_ms=entry.committed_at_ms, added=tuple(added),
            foreign_paths=tuple(foreign), foreign_rows=foreign_rows,
            instances=entry.mark.get("instances", {}), groups=entry.mark.get("groups", {}),
        )  # fmt: skip

    def _interpret_change(self, entry: LogEntry) -> MessageLogEntry:
        """Read a commit that removes or moves rows: only the coordinator makes such, and says what it did."""
        merged = _merged_files(entry)
        removed = {remove["path"] for remove in entry.removes}
        replaced = {part.path for file in merged for part in file.parts}
        retired = tuple(str(path) for path in entry.mark.get("retired", ()))
        explained = bool(entry.token) and removed == replaced | set(retired)
        if not explained or [add["path"] for add in entry.adds] != [file.path for file in merged]:
            # Rows that have bookmarks were moved or removed, and nobody knows which.
            path, previous = self._store.uri(self._key), entry.version - 1
            raise JournalError("JOURNAL_REWRITTEN", path=path, version=entry.version, operation=entry.operation, previous=previous)
        return MessageLogEntry(
            version=entry.version, token=entry.token, committed_at_ms=entry.committed_at_ms, merged=merged, retired_paths=retired
        )


def _merged_files(entry: LogEntry) -> tuple[MergedFile, ...]:
    try:
        return tuple(MergedFile.from_stored(file) for file in entry.mark.get("moved", ()))
    except (KeyError, TypeError, ValueError):
        return ()


def _of_mark(entry: LogEntry, number: int) -> dict[str, Any]:
    """Return what the mark of a commit says of the rows of one of its files: where they come from, and whose numbers they have."""
    mark = entry.mark
    if "origin" not in mark:
        # All rows of a commit are of one publisher. Its numbers are those of the whole, as they were given.
        numbers = (mark.get("first_sequence"), mark.get("last_sequence"))
        names = [name.removeprefix(PUBLISHER_TXN) for name in entry.transactions if name.startswith(PUBLISHER_TXN)]
        return {"publishers": dict.fromkeys(names, numbers)} if None not in numbers else {}
    found: dict[str, Any] = {"origins": tuple(map(tuple, mark["origin"][number]))}
    if "publishers" in mark:
        found |= {"publishers": sequence_ranges(mark["publishers"][number]), "clashes": tuple(map(tuple, mark["clashes"][number]))}
    return found


def _statistics(add: Mapping[str, Any]) -> dict[str, Any]:
    text = add.get("stats")
    try:
        statistics = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}
    return statistics if isinstance(statistics, dict) else {}


def added_file(path: str, statistics: Mapping[str, Any]) -> AddedFile:
    """Return what an `add` action says of a message file, by its statistics."""
    low, high = statistics["minValues"], statistics["maxValues"]
    return AddedFile(
        path=path,
        row_count=statistics["numRecords"],
        topic_min=low["topic"],
        topic_max=high["topic"],
        expires_null_count=statistics["nullCount"]["expires_at"],
        expires_min_ms=_instant_ms(low.get("expires_at")),
        expires_max_ms=_instant_ms(high.get("expires_at")),
    )


def _instant_ms(text: str | None) -> int | None:
    return None if text is None else round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
