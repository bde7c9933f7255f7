"""Reading a peer's control log forward: nothing is written there, and nothing repaired (DESIGN 17.3)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_queue.core.records import NUMBER_MAX, Kind, Record
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.control_files import ControlFile, listing, read_known
from spark_queue.journal.log_entry import LogEntry, OddEntryError, TornEntryError, read_entry
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.record_table import CONTROL_SCHEMA, NewerDetailError, detail_of, to_unchecked_records
from spark_queue.journal.store import CONTROL, Store, log_key
from spark_queue.replication.peer_files import DAMAGE, check_log, check_place, refused

_DATA_FILE = re.compile(r"(\d{20})-[0-9a-f]{32}\.parquet")


def check_file(peer: str, file: ControlFile) -> None:
    """Refuse a data file that has no name of ours: it could lie outside the peer's log."""
    # What its statistics say of it is whatever a peer wrote there.
    path, first, last = cast("tuple[object, object, object]", (file.path, file.first, file.last))
    named = _DATA_FILE.fullmatch(path) if isinstance(path, str) else None
    is_sound = isinstance(first, int) and isinstance(last, int) and 0 <= first <= last < NUMBER_MAX
    if named is None or not is_sound or int(named[1]) != first:
        raise refused(peer, f"data file {file.path!r:.100} of its log", "it is no file of records as its name and statistics say")


#: Most records that are read at once.
CHUNK_RECORDS = 10_000

#: After so many looks that found nothing the log is listed: entries that were cleaned away are no end of it.
LISTING_LOOKS = 20

#: Most entries of the log that are read by one look.
_LOOK_ENTRIES = 256

#: Files and entries that are read at once: enough for a peer that commits 50 times a second where a request takes 50 ms.
_AHEAD = 16

_Asked = TypeVar("_Asked")
_Found = TypeVar("_Found")


class LogReplacedError(Exception):
    """The log that was being read is no longer there, or went back: its journal was restored, or made anew."""


class PeerLog:
    """A peer's control log, read from some record on, some files at a time.

    With `origin`, only those records of entering that name it are wanted; `files` are read first, and where there are none all of
    the log.
    """

    def __init__(
        self, store: Store, peer: str, *, first: int = 0, kinds: Collection[str] | None = None, origin: str = "",
        files: Sequence[ControlFile] = (),
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
        self._files = list(files)
        #: Number of the last record that was found; -1 before the first.
        self.last_found = -1
        self._refusal: JournalError | None = None
        self._idle_looks = 0
        #: Of the commit that made the version that was looked at last; empty before the first.
        self._token = ""

    @classmethod
    def at_end(cls, store: Store, peer: str) -> PeerLog:
        """Return a reader of what will be committed from now on."""
        files, version = listed(store, peer)
        log = cls(store, peer, first=max((file.last + 1 for file in files), default=0))
        head = log._entry(version)
        log._version, log._token = version, "" if head is None else head.token
        return log

    @property
    def has_more(self) -> bool:
        """Whether more was found than has been read."""
        return bool(self._files)

    def read(self) -> list[Record]:
        """Return the next records in order; none where there are no more now."""
        if self._refusal is not None:
            raise self._refusal
        if not self._files:
            self._files = self._found()
            self.last_found = max(self.last_found, *(file.last for file in self._files), -1)
            if not self._files and self._next_record == 0:
                # The commit that makes a log brings its first records.
                raise refused(self._peer, "its log", "it has no records")
        chunk: list[Record] = []
        until = self._next_record + CHUNK_RECORDS
        try:
            while self._files and self._next_record < until:
                for rows in self._rows_of([file for file in self._files[:_AHEAD] if file.first < until], self._next_record):
                    self._take(rows, chunk)
                    self._files.pop(0)
        except JournalError as refusal:
            if not chunk:
                raise
            self._refusal = refusal
        return chunk

    def _rows_of(self, files: Sequence[ControlFile], first: int) -> Iterator[pa.Table]:
        return _at_once(lambda file: self._rows(file, max(first, file.first)), files)

    def _rows(self, file: ControlFile, first: int) -> pa.Table:
        key = f"{CONTROL}/{file.path}"
        check_place(self._store, self._peer, key)
        try:
            rows = read_known(self._store, file.path, first=first)
            rows.validate(full=True)
        except DAMAGE as reason:
            raise refused(self._peer, key, self._store.reason(reason)) from None
        except JournalError as damage:
            if damage.code != "JOURNAL_DAMAGED":
                raise
            raise refused(self._peer, key, f"{damage.facts['what']}: {damage.facts['reason']}") from None
        if len(rows) != file.last + 1 - first:
            raise refused(self._peer, key, f"it has no {file.records} records")
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

    def _found(self) -> list[ControlFile]:
        """Return the next files; a look at a log that did not go on costs one request."""
        if self._version < 0:
            return self._listed()
        files, next_record, is_broken, is_checked = list[ControlFile](), self._next_record, False, False
        for entry in self._next_entries():
            brought = self._brought(entry)
            if brought and brought[0].first > next_record:
                is_broken = True
                break
            files += brought
            next_record = max([next_record, *(file.last + 1 for file in brought)])
            if entry.version == self._version + 1 and not is_checked:
                # What follows another commit than the one that was read last is another log.
                self.check_last()
                is_checked = True
            self._version, self._token, self._idle_looks = entry.version, entry.token, 0
        if files:
            return files
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
        window = 1
        while len(found) < _LOOK_ENTRIES:
            first = self._version + 1 + len(found)
            for entry in _at_once(self._entry, range(first, first + window)):
                if entry is None:
                    return found
                found.append(entry)
            window = min(2 * window, _AHEAD)
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

    def _listed(self) -> list[ControlFile]:
        found, version = listed(self._store, self._peer)
        head = self._entry(version)
        self._version, self._token = version, "" if head is None else head.token
        return [file for file in found if file.last >= self._next_record]

    def _brought(self, entry: LogEntry) -> list[ControlFile]:
        """Return the files of an entry that bring records; merging brings none."""
        try:
            found = [ControlFile.of_add(add) for add in entry.adds if add.get("dataChange", True)]
        except DAMAGE as reason:
            raise refused(self._peer, f"entry {entry.version} of its log", repr(reason)) from None
        for file in found:
            check_file(self._peer, file)
        return sorted(found)


def _at_once(read: Callable[[_Asked], _Found], wanted: Sequence[_Asked]) -> Iterator[_Found]:
    """Yield what each of some reads gives; they wait for the store, not for a processor."""
    if len(wanted) <= 1:
        yield from map(read, wanted)
        return
    with ThreadPoolExecutor(len(wanted)) as readers:
        yield from readers.map(read, wanted)


def scan(store: Store, peer: str, kinds: Collection[str] | None, *, first: int = 0, origin: str = "") -> Iterator[Record]:
    """Yield the records of some kinds, or all, from one on as the log stands now; see `PeerLog`."""
    log = PeerLog(store, peer, first=first, kinds=kinds, origin=origin)
    yield from log.read()
    while log.has_more:
        yield from log.read()


def listed(store: Store, peer: str) -> tuple[list[ControlFile], int]:
    """Return the files of a control log as it stands, and its version; `open_control` would repair it."""
    check_log(store, peer)
    table = delta.open_table(store, CONTROL)
    if table is None:
        raise JournalError("PEER_AWAY", peer=peer, path=store.path)
    try:
        files = listing(store, table)
    except DAMAGE as reason:
        raise refused(peer, "the list of its log's files", store.reason(reason)) from None
    for file in files:
        check_file(peer, file)
    return files, int(table.version())


def digest_of(record: Record) -> str:
    """Return the SHA-256 of a record, by which a log is told from another that begins alike."""
    detail = msgspec.json.decode(detail_of(record))
    facts = (record.kind, record.record, record.epoch, record.at_ms, record.message_type, record.queue, record.subscription,
             record.lease, tuple(record.ranges), record.reason, record.due_at_ms, detail)  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
