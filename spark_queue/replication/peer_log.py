"""Reading a peer's control log forward: nothing is written there, and nothing repaired (DESIGN 17.3)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_queue.core.records import NUMBER_MAX, Kind, Record
from spark_queue.errors import JournalError
from spark_queue.journal import control_table
from spark_queue.journal.control_table import ControlTable, OddLogError, brought_by
from spark_queue.journal.log_entry import LogEntry, OddEntryError, TornEntryError, check_mark, read_entry
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.read_ahead import read_ahead, read_together
from spark_queue.journal.record_blocks import RecordBlock, read_known
from spark_queue.journal.record_table import CONTROL_SCHEMA, NewerDetailError, detail_of, to_unchecked_records
from spark_queue.journal.store import CONTROL, Store, log_key
from spark_queue.replication.peer_files import DAMAGE, check_log, check_place, refused

_DATA_FILE = re.compile(r"(\d{20})-[0-9a-f]{32}\.parquet")


def check_block(peer: str, block: RecordBlock) -> None:
    """Refuse records with impossible numbers, and a data file that has no name of ours: it could lie outside the peer's log."""
    # What its statistics say of it is whatever a peer wrote there.
    path, first, last = cast("tuple[object, object, object]", (block.path, block.first, block.last))
    is_sound = isinstance(first, int) and isinstance(last, int) and 0 <= first <= last < NUMBER_MAX
    if block.rows:
        if not is_sound or block.records != len(block.rows):
            raise refused(peer, "an entry of its log", "the records in it are not dense")
        return
    named = _DATA_FILE.fullmatch(path) if isinstance(path, str) else None
    if named is None or not is_sound or int(named[1]) != first:
        raise refused(peer, f"data file {block.path!r:.100} of its log", "it is no file of records as its name and statistics say")


#: Most records that are read at once.
CHUNK_RECORDS = 10_000

#: After so many looks that found nothing the log is listed: entries that were cleaned away are no end of it.
LISTING_LOOKS = 20

#: Most entries of the log that are read by one look.
_LOOK_ENTRIES = 256

#: Files and entries that are read at once: enough for a peer that commits 50 times a second where a request takes 50 ms.
_AHEAD = 16


class LogReplacedError(Exception):
    """The log that was being read is no longer there, or went back: its journal was restored, or made anew."""


class PeerLog:
    """A peer's control log, read from some record on, some files at a time.

    With `origin`, only those records of entering that name it are wanted; `blocks` are read first, and where there are none all of
    the log.
    """

    def __init__(
        self, store: Store, peer: str, *, first: int = 0, kinds: Collection[str] | None = None, origin: str = "",
        blocks: Sequence[RecordBlock] = (),
    ) -> None:  # fmt: skip
        self._store = store
        self._peer = peer
        #: Newest version of the table that was looked at; -1 before the first.
        self._version = -1
        self._next_record = first
        self._epoch = 0
        self._kinds = None if kinds is None else pa.array(sorted(kinds), pa.string())
        self._origin = origin
        #: Those that were found and not read.
        self._blocks = list(blocks)
        #: Number of the last record that was found; -1 before the first.
        self.last_found = -1
        self._refusal: JournalError | None = None
        self._idle_looks = 0
        #: Of the commit that made the version that was looked at last; empty before the first.
        self._token = ""

    @classmethod
    def at_end(cls, store: Store, peer: str) -> PeerLog:
        """Return a reader of what will be committed from now on."""
        log = cls(store, peer)
        blocks = log._listed()
        log._next_record = max((block.last + 1 for block in blocks), default=0)
        return log

    @property
    def has_more(self) -> bool:
        """Whether more was found than has been read."""
        return bool(self._blocks)

    def read(self) -> list[Record]:
        """Return the next records in order; none where there are no more now."""
        if self._refusal is not None:
            raise self._refusal
        if not self._blocks:
            self._blocks = self._found()
            self.last_found = max(self.last_found, *(block.last for block in self._blocks), -1)
            if not self._blocks and self._next_record == 0:
                # The commit that makes a log brings its first records.
                raise refused(self._peer, "its log", "it has no records")
        chunk: list[Record] = []
        until = self._next_record + CHUNK_RECORDS
        try:
            while self._blocks and self._next_record < until:
                for rows in self._rows_of([block for block in self._blocks[:_AHEAD] if block.first < until], self._next_record):
                    self._take(rows, chunk)
                    self._blocks.pop(0)
        except JournalError as refusal:
            if not chunk:
                raise
            self._refusal = refusal
        return chunk

    def _rows_of(self, blocks: Sequence[RecordBlock], first: int) -> Iterator[pa.Table]:
        return read_together(lambda block: self._rows(block, max(first, block.first)), blocks, at_once=_AHEAD)

    def _rows(self, block: RecordBlock, first: int) -> pa.Table:
        if block.is_file:
            check_place(self._store, self._peer, block.name)
        try:
            rows = read_known(self._store, block, first=first)
            rows.validate(full=True)
        except DAMAGE as reason:
            raise refused(self._peer, block.name, self._store.reason(reason)) from None
        except JournalError as damage:
            if damage.code != "JOURNAL_DAMAGED":
                raise
            raise refused(self._peer, block.name, f"{damage.facts['what']}: {damage.facts['reason']}") from None
        if len(rows) != block.last + 1 - first:
            raise refused(self._peer, block.name, f"it has no {block.records} records")
        return rows

    def _take(self, rows: pa.Table, into: list[Record]) -> None:
        """Append the records of rows; where one is refused, those before it stand."""
        try:
            into += self._records(rows)
        except JournalError:
            # One after the other, so that the error names it.
            for index in range(len(rows) if len(rows) > 1 else 0):
                self._take(rows.slice(index, 1), into)
            raise
        self._next_record += len(rows)
        self._epoch = rows.column("epoch")[-1].as_py() if len(rows) else self._epoch

    def _records(self, rows: pa.Table) -> list[Record]:
        try:
            for field in CONTROL_SCHEMA:
                if not field.nullable and rows.column(field.name).null_count:
                    raise ValueError(f"its {field.name} is missing")
            numbers = rows.column("record").to_numpy()
            if not np.array_equal(numbers, np.arange(self._next_record, self._next_record + len(rows))):
                raise ValueError(f"its log goes on with record {numbers[0]}")
            epochs = np.concatenate([[self._epoch], rows.column("epoch").to_numpy()])
            if (epochs[1:] < epochs[:-1]).any():
                raise ValueError("its epoch is lower than that of the record before")
            if self._kinds is not None:
                is_other = pc.not_equal(rows.column("kind"), pa.scalar(Kind.ENTERED.value))
                is_about = pc.or_(is_other, pc.match_substring(rows.column("detail"), self._origin))
                rows = rows.filter(pc.and_(pc.is_in(rows.column("kind"), self._kinds), is_about))
            return list(to_unchecked_records(rows.combine_chunks()))
        except NewerDetailError as newer:
            raise JournalError("PROTOCOL_NEWER", path=self._store.path, what=str(newer)) from None
        except DAMAGE as reason:
            raise refused(self._peer, f"record {self._next_record}", self._store.reason(reason)) from None

    def moves_ahead(self) -> Iterator[Record]:
        """Yield the records beyond those that were read that say where messages went."""
        yield from scan(self._store, self._peer, (Kind.MOVED, Kind.RETIRED), first=self._next_record)

    def _found(self) -> list[RecordBlock]:
        """Return the next blocks; a look at a log that did not go on costs one request."""
        if self._version < 0:
            return self._listed()
        blocks, next_record, is_broken, is_checked = list[RecordBlock](), self._next_record, False, False
        for entry in self._next_entries():
            check_mark(entry, path=self._store.path)
            # Records that entries held come again as files.
            brought = [block for block in self._brought(entry) if block.last >= next_record]
            if brought and brought[0].first > next_record:
                is_broken = True
                break
            blocks += brought
            next_record = max([next_record, *(block.last + 1 for block in brought)])
            if entry.version == self._version + 1 and not is_checked:
                # What follows another commit than the one that was read last is another log.
                self.check_last()
                is_checked = True
            self._version, self._token, self._idle_looks = entry.version, entry.token, 0
        if blocks:
            return blocks
        self._idle_looks += 1
        # Entries that were cleaned away, and records merged since, are found where the table stands now.
        if not is_broken and self._idle_looks < LISTING_LOOKS:
            return []
        self._idle_looks = 0
        self.check_last()
        return self._listed() if versions_after(self._store, CONTROL, self._version) else []

    def _next_entries(self) -> list[LogEntry]:
        """Return the entries after the newest that was read: one request where there are none, more at once the more there are."""
        found: list[LogEntry] = []
        for entry in read_ahead(self._entry, count(self._version + 1), at_once=_AHEAD):
            if entry is None:
                break
            found.append(entry)
            if len(found) == _LOOK_ENTRIES:
                break
        return found

    def check_last(self) -> None:
        """Raise where the last commit that was read is not there any more, and was not cleaned away."""
        if self._version < 0:
            return
        last = self._entry(self._version)
        if last is None and versions_after(self._store, CONTROL, self._version):
            return
        if ("" if last is None else last.token) != self._token:
            raise LogReplacedError

    def _entry(self, version: int) -> LogEntry | None:
        check_place(self._store, self._peer, log_key(CONTROL, version))
        try:
            return read_entry(self._store, CONTROL, version)
        except OddEntryError as reason:
            raise refused(self._peer, f"entry {version} of its log", reason) from None
        except TornEntryError:
            # Its writer, or whoever opens that journal, repairs it.
            return None
        except DAMAGE as reason:
            raise refused(self._peer, f"entry {version} of its log", reason) from None

    def _listed(self) -> list[RecordBlock]:
        table = read_table(self._store, self._peer)
        self._version, self._token = table.version, "" if table.head is None else table.head.token
        return [block for block in blocks_of(table, self._peer) if block.last >= self._next_record]

    def _brought(self, entry: LogEntry) -> list[RecordBlock]:
        """Return the blocks that an entry brings, or brings again as files; merging brings none."""
        try:
            found = brought_by(entry)
        except DAMAGE as reason:
            raise refused(self._peer, f"entry {entry.version} of its log", repr(reason)) from None
        for block in found:
            check_block(self._peer, block)
        return found


def scan(store: Store, peer: str, kinds: Collection[str] | None, *, first: int = 0, origin: str = "") -> Iterator[Record]:
    """Yield the records of some kinds, or all, from one on as the log stands now; see `PeerLog`."""
    log = PeerLog(store, peer, first=first, kinds=kinds, origin=origin)
    yield from log.read()
    while log.has_more:
        yield from log.read()


def read_table(store: Store, peer: str) -> ControlTable:
    """Read a control log as it stands; `open_control` would repair it."""
    check_log(store, peer)

    def get(key: str) -> bytes | None:
        check_place(store, peer, key)
        return store.read(key)

    try:
        table = control_table.read(store, get=get, skips_torn=True)
    except OddLogError as odd:
        raise refused(peer, odd.what, store.reason(odd)) from None
    if table is None:
        raise JournalError("PEER_AWAY", peer=peer, path=store.path)
    return table


def blocks_of(table: ControlTable, peer: str) -> list[RecordBlock]:
    """Return the blocks of a peer's control log, checked one by one."""
    blocks = [*table.files.values(), *table.held.values()]
    for block in blocks:
        check_block(peer, block)
    return sorted(blocks)


def digest_of(record: Record) -> str:
    """Return the SHA-256 of a record, by which a log is told from another that begins alike."""
    detail = msgspec.json.decode(detail_of(record))
    facts = (record.kind, record.record, record.epoch, record.at_ms, record.message_type, record.queue, record.subscription,
             record.lease, tuple(record.ranges), record.reason, record.due_at_ms, detail)  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
