"""Reading a peer's control log forward: nothing is written there, and nothing repaired (DESIGN 17.3)."""

from __future__ import annotations

import hashlib

import msgspec

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.records import Record
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.control_files import ControlFile, listing, read_records
from spark_queue.journal.layout import CONTROL, Store
from spark_queue.journal.log_entry import LogEntry, TornEntryError, read_entry
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.reader import setup_of


class LogReplacedError(Exception):
    """The log that was being read is no longer there, or went back: its journal was restored, or made anew."""


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
        #: Of the commit that made it.
        self._token = ""
        self._next_record = 0

    def read(self) -> list[Record]:
        """Return the records since the last call, in order; all of them at the first.

        Raises
        ------
        JournalError
            NOT_A_JOURNAL, PROTOCOL_NEWER, JOURNAL_DAMAGED or STORE_FAILED: what was read is lost, so a new reader must begin.
        LogReplacedError
            Just so.
        """
        found: list[Record] = []
        if self._version >= 0:
            self._check_last()
        while self._version >= 0 and (entry := self._entry(self._version + 1)) is not None:
            files = _brought(entry)
            if files and files[0].first > self._next_record:
                break
            found += self._take(files)
            self._version, self._token = entry.version, entry.token
        # Entries that were cleaned away, and records merged since, are found where the table stands now.
        return found or (self._read_table() if self._version < 0 or self._has_moved_on() else [])

    def _check_last(self) -> None:
        """Raise where the last commit that was read is not there any more, and was not cleaned away."""
        last = self._entry(self._version)
        if last is None and self._has_moved_on():
            return
        if last is None or last.token != self._token:
            raise LogReplacedError

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
        files, version = _listed(self._store)
        found = self._take(files)
        head = self._entry(version)
        self._version, self._token = version, "" if head is None else head.token
        return found

    def _take(self, files: list[ControlFile]) -> list[Record]:
        records = read_records(self._store, files, first=self._next_record) if files else []
        self._next_record += len(records)
        return records


def read_definitions(store: Store) -> tuple[str, Definitions]:
    """Return the UUID of a peer's journal and the definitions that hold there; reads nothing else.

    Raises
    ------
    JournalError
        NOT_A_JOURNAL, PROTOCOL_NEWER, JOURNAL_DAMAGED or STORE_FAILED.
    ConfigError
        What this software refuses of its definitions.
    """
    created, applied = setup_of(store, _listed(store)[0])
    return str(created.detail["journal"]), parsing.parse(applied.detail["definitions"])


def read_since(store: Store, record: int) -> list[Record]:
    """Return the records of a peer after one of them.

    Raises
    ------
    JournalError
        NOT_A_JOURNAL, PROTOCOL_NEWER, JOURNAL_DAMAGED or STORE_FAILED.
    """
    return read_records(store, _listed(store)[0], first=record + 1)


def _listed(store: Store) -> tuple[list[ControlFile], int]:
    """Return the files of a control log as it stands, and its version; `open_control` would repair it."""
    table = delta.open_table(store, CONTROL)
    if table is None:
        raise JournalError("NOT_A_JOURNAL", path=store.path, reason="it has no control log.")
    return listing(store, table), int(table.version())


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
