"""Reading a peer's control log forward: nothing is written there, and nothing repaired (DESIGN 17.3)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from spark_queue.core.records import Record
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.control_files import ControlFile, listing, read_records
from spark_queue.journal.layout import CONTROL, Store
from spark_queue.journal.log_entry import LogEntry, TornEntryError, read_entry
from spark_queue.journal.log_listing import versions_after


class PeerLog:
    """A peer's control log, read record by record from the first.

    Parameters
    ----------
    store : Store
        Where the peer's journal is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Newest version of the table that was read; -1 before the first.
        self._version = -1
        self._next_record = 0

    @classmethod
    def at_end(cls, store: Store) -> PeerLog:
        """Return a reader of what will be committed from now on.

        Raises
        ------
        JournalError
            NOT_A_JOURNAL, JOURNAL_DAMAGED or STORE_FAILED.
        """
        log, table = cls(store), _open(store)
        log._next_record = max((file.last + 1 for file in listing(store, table)), default=0)
        log._version = int(table.version())
        return log

    def read(self) -> list[Record]:
        """Return the records since the last call, in order; all of them at the first.

        Raises
        ------
        JournalError
            NOT_A_JOURNAL, PROTOCOL_NEWER, JOURNAL_DAMAGED or STORE_FAILED: what was read is lost, so a new reader must begin.
        """
        found: list[Record] = []
        while self._version >= 0 and (entry := self._entry(self._version + 1)) is not None:
            files = _brought(entry)
            if files and files[0].first > self._next_record:
                break
            found += self._take(files)
            self._version = entry.version
        # Entries that were cleaned away, and records merged since, are found where the table stands now.
        return found or (self._read_table() if self._version < 0 or self._has_moved_on() else [])

    def _entry(self, version: int) -> LogEntry | None:
        try:
            return read_entry(self._store, CONTROL, version)
        except TornEntryError:
            # Its writer, or whoever opens that journal, repairs it.
            return None

    def _has_moved_on(self) -> bool:
        """Return whether the table goes on beyond an entry that is missing."""
        return bool(versions_after(self._store, CONTROL, self._version))

    def _read_table(self) -> list[Record]:
        table = _open(self._store)
        found = self._take(listing(self._store, table))
        self._version = int(table.version())
        return found

    def _take(self, files: list[ControlFile]) -> list[Record]:
        records = read_records(self._store, files, first=self._next_record) if files else []
        self._next_record += len(records)
        return records


def _open(store: Store) -> Any:
    table = delta.open_table(store, CONTROL)
    if table is None:
        raise JournalError("NOT_A_JOURNAL", path=store.path, reason="it has no control log.")
    return table


def digest_of(record: Record) -> str:
    """Return the SHA-256 of a record, by which a log is told from another that begins alike."""
    facts = (record.kind, record.record, record.epoch, record.at_ms, record.message_type, record.queue, record.subscription,
             record.lease, tuple(record.ranges), record.reason, record.due_at_ms, record.detail)  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def _brought(entry: LogEntry) -> list[ControlFile]:
    """Return the files of an entry that bring records; merging brings none."""
    found = []
    for add in entry.adds:
        statistics = msgspec.json.decode(add.get("stats") or "{}")
        if add.get("dataChange", True):
            low, high = statistics["minValues"], statistics["maxValues"]
            found.append(ControlFile(low["record"], high["record"], add["path"], (low["kind"], high["kind"])))
    return sorted(found)
