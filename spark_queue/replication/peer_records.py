"""Records out of a data file of a peer's control log, part by part, each as large as ours are at most (DESIGN 17.3)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_queue.core.records import Record
from spark_queue.errors import JournalError
from spark_queue.journal.control_files import ControlFile
from spark_queue.journal.layout import CONTROL, Store, TooLargeError
from spark_queue.journal.record_table import CONTROL_SCHEMA, NewerDetailError, to_records
from spark_queue.replication.bounded_files import BoundedFile, UnboundedFileError
from spark_queue.replication.places import check_place, refused
from spark_queue.replication.record_forms import NUMBER_MAX

#: Most bytes of a record's detail, and of any other text in it.
DETAIL_BYTES = 16 * 1024 * 1024
_TEXT_BYTES = 1_000

#: Most lists and tables in a record's detail: reading them keeps all else waiting. Ours have some hundred thousand at most.
VALUES_MOST = 2**19

#: What each of them takes in memory at least, in bytes.
_VALUE_BYTES = 64

#: Most bytes of records that become objects in memory at once, but for one record alone.
CHUNK_BYTES = 32 * 1024 * 1024

#: Most ranges of a record: a purge by filter may find every other one of eight million messages.
RANGES = 2**22

#: Files up to this size are read by one request, larger ones part by part, in bytes.
_SMALL_BYTES = 4 * 1024 * 1024

#: Records that become rows in memory at once.
_PART_RECORDS = 1_024

#: What reading whatever somebody made may raise.
DAMAGE = (
    pa.ArrowException, msgspec.MsgspecError, UnboundedFileError, ValueError, TypeError, KeyError, IndexError, AttributeError,
    OverflowError, RecursionError,
)  # fmt: skip

_DATA_FILE = re.compile(r"(\d{20})-[0-9a-f]{32}\.parquet")


def check_file(peer: str, file: ControlFile) -> None:
    """Refuse a data file that has no name of ours: it could lie outside the peer's log.

    Raises
    ------
    JournalError
        PEER_REFUSED.
    """
    # What its statistics say of it is whatever a peer wrote there.
    path, first, last = cast("tuple[object, object, object]", (file.path, file.first, file.last))
    named = _DATA_FILE.fullmatch(path) if isinstance(path, str) else None
    is_sound = isinstance(first, int) and isinstance(last, int) and 0 <= first <= last < NUMBER_MAX
    if named is None or not is_sound or int(named[1]) != first:
        raise refused(peer, f"data file {file.path!r:.100} of its log", "it is no file of records as its name and statistics say")


def source_of(store: Store, peer: str, file: ControlFile) -> Any:
    """Return what a data file is read from: its bytes, or for a large one something that reads parts of it.

    Raises
    ------
    JournalError
        PEER_REFUSED, STORE_FAILED.
    """
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
    """Yield the rows of a data file from record `first` on, as rows of records.

    Raises
    ------
    JournalError
        PEER_REFUSED, STORE_FAILED.
    """
    key = f"{CONTROL}/{file.path}"
    try:
        with store.failures(f"reading {key}"):
            try:
                found = BoundedFile(source, CONTROL_SCHEMA.names)
                if found.columns != CONTROL_SCHEMA.names or found.row_count != file.records:
                    raise UnboundedFileError(f"it has no {file.records} records with all their columns")
                start = max(first, file.first) - file.first
                for part in found.parts(start, file.records - start, most_rows=_PART_RECORDS):
                    yield from _cut(part.cast(CONTROL_SCHEMA).combine_chunks())
            except OSError as failure:
                # A disk or a network that fails has a number; what pyarrow cannot decode has none.
                if failure.errno is None:
                    raise UnboundedFileError(failure) from None
                raise
    except DAMAGE as reason:
        raise refused(peer, key, store.reason(reason)) from None


def _cut(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in parts that may be in memory as objects."""
    if len(rows) <= 1 or size_of(rows) <= CHUNK_BYTES:
        yield rows
    else:
        middle = len(rows) // 2
        yield from _cut(rows.slice(0, middle))
        yield from _cut(rows.slice(middle))


def size_of(rows: pa.Table) -> int:
    """Return about how many bytes rows take as objects."""
    return rows.nbytes + _VALUE_BYTES * int(pc.sum(_values(rows)).as_py() or 0)


def _values(rows: pa.Table) -> Any:
    """Return how many lists and tables each record's detail has."""
    detail = rows.column("detail")
    return pc.add(pc.count_substring(detail, "["), pc.count_substring(detail, "{"))


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
        """Append the records of rows; where one is refused, those before it stand.

        Raises
        ------
        JournalError
            PEER_REFUSED, PROTOCOL_NEWER.
        """
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
            _check_sizes(rows)
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


def _check_sizes(rows: pa.Table) -> None:
    for field in CONTROL_SCHEMA:
        column = rows.column(field.name)
        if not field.nullable and column.null_count:
            raise ValueError(f"its {field.name} is missing")
        if pa.types.is_string(field.type):
            most = DETAIL_BYTES if field.name == "detail" else _TEXT_BYTES
            found = pc.max(pc.binary_length(column)).as_py() or 0
            if found > most:
                raise ValueError(f"its {field.name} has {found} bytes, and {most} are the most")
    values = pc.max(_values(rows)).as_py() or 0
    if values > VALUES_MOST:
        raise ValueError(f"its detail has {values} lists and tables, and {VALUES_MOST} are the most")
    ranges = pc.max(pc.list_value_length(rows.column("ranges"))).as_py() or 0
    if ranges > RANGES:
        raise ValueError(f"it has {ranges} ranges, and {RANGES} are the most")
