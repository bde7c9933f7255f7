"""Reading a peer's control log forward: nothing is written there, and nothing repaired (DESIGN 17.3).

Records out of a data file of a peer's control log, part by part, each as large as ours are at most (DESIGN 17.3).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_queue.core.records import Kind, Record
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.control_files import CONTROL_SCHEMA, ControlFile, NewerDetailError, listing, to_records
from spark_queue.journal.delta import versions_after
from spark_queue.journal.layout import CONTROL, Store, TooLargeError, log_key
from spark_queue.journal.log_entry import LogEntry, OddEntryError, TornEntryError, read_entry
from spark_queue.replication.peer_files import OddFileError, PeerFile, check_log, check_place, refused
from spark_queue.replication.record_forms import NUMBER_MAX

#: Most bytes of records that become objects in memory at once, but for one record alone.
CHUNK_BYTES = 32 * 1024 * 1024

#: Files up to this size are read by one request, larger ones part by part, in bytes.
_SMALL_BYTES = 4 * 1024 * 1024

#: Records that become rows in memory at once.
_PART_RECORDS = 1_024

#: What reading whatever somebody made may raise.
DAMAGE = (
    pa.ArrowException, msgspec.MsgspecError, OddFileError, ValueError, TypeError, KeyError, IndexError, AttributeError,
    OverflowError, RecursionError,
)  # fmt: skip

_DATA_FILE = re.compile(r"(\d{20})-[0-9a-f]{32}\.parquet")


def check_file(peer: str, file: ControlFile) -> None:
    """Refuse a data file that has no name of ours: it could lie outside the peer's log."""
    # What its statistics say of it is whatever a peer wrote there.
    path, first, last = cast("tuple[object, object, object]", (file.path, file.first, file.last))
    named = _DATA_FILE.fullmatch(path) if isinstance(path, str) else None
    is_sound = isinstance(first, int) and isinstance(last, int) and 0 <= first <= last < NUMBER_MAX
    if named is None or not is_sound or int(named[1]) != first:
        raise refused(peer, f"data file {file.path!r:.100} of its log", "it is no file of records as its name and statistics say")


def source_of(store: Store, peer: str, file: ControlFile) -> Any:
    """Return what a data file is read from: its bytes, or for a large one something that reads parts of it."""
    key = f"{CONTROL}/{file.path}"
    check_place(store, peer, key)
    try:
        data = store.read(key, most_bytes=_SMALL_BYTES)
    except TooLargeError:
        with store.failures(f"reading {key}"):
            return store.open(key)
    if data is None:
        raise refused(peer, key, "its log names that file, and it is not there")
    return pa.BufferReader(data)


def parts_of(store: Store, peer: str, file: ControlFile, source: Any, *, first: int) -> Iterator[pa.Table]:
    """Yield the rows of a data file from record `first` on, as rows of records."""
    key = f"{CONTROL}/{file.path}"
    try:
        with store.failures(f"reading {key}"):
            try:
                found = PeerFile(source, CONTROL_SCHEMA.names)
                if found.columns != CONTROL_SCHEMA.names or found.row_count != file.records:
                    raise OddFileError(f"it has no {file.records} records with all their columns")
                start = max(first, file.first) - file.first
                for part in found.parts(start, file.records - start, most_rows=_PART_RECORDS):
                    yield part.cast(CONTROL_SCHEMA).combine_chunks()
            except OSError as failure:
                # A disk or a network that fails has a number; what pyarrow cannot decode has none.
                if failure.errno is None:
                    raise OddFileError(failure) from None
                raise
    except DAMAGE as reason:
        raise refused(peer, key, store.reason(reason)) from None


class RecordReader:
    """Makes records of rows, checked for gaps.

    Parameters
    ----------
    first : int
        Number of the first of them.
    kinds : Collection of str or None
        Which of them are wanted; None for all.
    """

    def __init__(self, store: Store, peer: str, first: int, kinds: Collection[str] | None = None) -> None:
        self._store = store
        self._peer = peer
        self.next_record = first
        self._epoch = 0
        self._kinds = None if kinds is None else pa.array(sorted(kinds), pa.string())

    def read(self, rows: pa.Table, into: list[Record]) -> None:
        """Append the records of rows; where one is refused, those before it stand."""
        try:
            found = self._read(rows)
        except JournalError:
            # One after the other, so that the error names it.
            for index in range(len(rows) if len(rows) > 1 else 0):
                self.read(rows.slice(index, 1), into)
            raise
        into += found
        self.next_record += len(rows)
        self._epoch = rows.column("epoch")[-1].as_py() if len(rows) else self._epoch

    def _read(self, rows: pa.Table) -> list[Record]:
        what = f"record {self.next_record}"
        try:
            for field in CONTROL_SCHEMA:
                if not field.nullable and rows.column(field.name).null_count:
                    raise ValueError(f"its {field.name} is missing")
            numbers = rows.column("record").to_numpy()
            if not np.array_equal(numbers, np.arange(self.next_record, self.next_record + len(rows))):
                raise ValueError(f"its log goes on with record {numbers[0]}")
            epochs = np.concatenate([[self._epoch], rows.column("epoch").to_numpy()])
            if (epochs[1:] < epochs[:-1]).any():
                raise ValueError("its epoch is lower than that of the record before")
            if self._kinds is not None:
                rows = rows.filter(pc.is_in(rows.column("kind"), self._kinds))
            return list(to_records(rows.combine_chunks()))
        except NewerDetailError as newer:
            raise JournalError("PROTOCOL_NEWER", path=self._store.path, what=str(newer)) from None
        except DAMAGE as reason:
            raise refused(self._peer, what, self._store.reason(reason)) from None


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
    """A peer's control log, read from its first record on in chunks of bounded size.

    Parameters
    ----------
    store : Store
        Where the peer's journal is.
    peer : str
        The name of its instance, for errors.
    first : int
        Number of the first record that is wanted.
    kinds : Collection of str or None
        Which records are wanted; None for all.

    Attributes
    ----------
    has_more : bool
        Whether more was found than has been read.
    last_found : int
        Number of the last record that was found; -1 before the first.
    """

    def __init__(self, store: Store, peer: str, *, first: int = 0, kinds: Collection[str] | None = None) -> None:
        self._store = store
        self._peer = peer
        #: Newest version of the table that was looked at; -1 before the first.
        self._version = -1
        self._reader = RecordReader(store, peer, first, kinds)
        self._rows: Iterator[pa.Table] = iter(())
        self.has_more = False
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

    def read(self) -> list[Record]:
        """Return the next records in order; none where there are no more now."""
        if self._refusal is not None:
            raise self._refusal
        if not self.has_more:
            files = self._found()
            self._rows, self.has_more = self._rows_of(files), bool(files)
            self.last_found = max(self.last_found, *(file.last for file in files), -1)
            if not files and self._reader.next_record == 0:
                # The commit that makes a log brings its first records.
                raise refused(self._peer, "its log", "it has no records")
        chunk: list[Record] = []
        size_bytes = 0
        try:
            while self.has_more and len(chunk) < CHUNK_RECORDS and size_bytes < CHUNK_BYTES:
                rows = next(self._rows, None)
                if rows is None:
                    self.has_more = False
                else:
                    size_bytes += rows.nbytes
                    self._reader.read(rows, chunk)
        except JournalError as refusal:
            if not chunk:
                raise
            self._refusal = refusal
        return chunk

    def moves_ahead(self) -> Iterator[Record]:
        """Yield the records beyond those that were read that say where messages went."""
        yield from scan(self._store, self._peer, (Kind.MOVED, Kind.RETIRED), first=self._reader.next_record)

    def _rows_of(self, files: Sequence[ControlFile]) -> Iterator[pa.Table]:
        def source(file: ControlFile) -> object:
            return source_of(self._store, self._peer, file)

        first = self._reader.next_record
        wanted = [file for file in files if file.last >= first]
        for start in range(0, len(wanted), _AHEAD):
            group = wanted[start : start + _AHEAD]
            for file, found in zip(group, _at_once(source, group), strict=True):
                yield from parts_of(self._store, self._peer, file, found, first=first)

    def _found(self) -> list[ControlFile]:
        """Return the next files; a look at a log that did not go on costs one request."""
        if self._version < 0:
            return self._listed()
        files, next_record, is_broken, is_checked = list[ControlFile](), self._reader.next_record, False, False
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
        except (TooLargeError, *DAMAGE) as reason:
            raise refused(self._peer, f"entry {version} of its log", reason) from None

    def _listed(self) -> list[ControlFile]:
        found, version = listed(self._store, self._peer)
        head = self._entry(version)
        self._version, self._token = version, "" if head is None else head.token
        return [file for file in found if file.last >= self._reader.next_record]

    def _brought(self, entry: LogEntry) -> list[ControlFile]:
        """Return the files of an entry that bring records; merging brings none."""
        try:
            found = [ControlFile.of_add(add) for add in entry.adds if add.get("dataChange", True)]
        except DAMAGE as reason:
            raise refused(self._peer, f"entry {entry.version} of its log", repr(reason)) from None
        for file in found:
            check_file(self._peer, file)
        return sorted(found)


def _at_once(read: Callable[[_Asked], _Found], wanted: Sequence[_Asked]) -> list[_Found]:
    """Return what each of some reads gives; they wait for the store, not for a processor."""
    if len(wanted) <= 1:
        return [read(each) for each in wanted]
    with ThreadPoolExecutor(len(wanted)) as readers:
        return list(readers.map(read, wanted))


def scan(store: Store, peer: str, kinds: Collection[str] | None, *, first: int = 0) -> Iterator[Record]:
    """Yield the records of some kinds, or all, from one on as the log stands now."""
    log = PeerLog(store, peer, first=first, kinds=kinds)
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
    facts = (record.kind, record.record, record.epoch, record.at_ms, record.message_type, record.queue, record.subscription,
             record.lease, tuple(record.ranges), record.reason, record.due_at_ms, record.detail)  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
