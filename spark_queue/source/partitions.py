"""Code of executors: reading the rows of a lease, or of a range of a topic, from message files.

Executors talk to nobody; a partition names files and rows and carries what the reader appends. This module imports pyarrow
and numpy only, because every Python worker of a cluster loads it before its first row.

Offsets of streams, as Spark writes them into a checkpoint.
Cutting row ranges into partitions; runs where partitions are planned, never on executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

from spark_queue.errors import LeaseError
from spark_queue.source.object_store import ExecutorFiles

OFFSET_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offset:
    """Base: everything but the last field says what the offset is about; the last one is the position."""

    _about: ClassVar[str]

    journal: str

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark stores, in its fixed key order."""
        return {"v": OFFSET_VERSION, **asdict(self)}

    def check(self, stored: Mapping[str, Any]) -> Self:
        """Read a stored offset that must be about the same as this one.

        Raises
        ------
        LeaseError
            CHECKPOINT_FOREIGN, naming the first thing that differs.
        """
        *names, last = (entry.name for entry in fields(self))
        expected = {"v": OFFSET_VERSION, **{name: getattr(self, name) for name in names}}
        for name, value in expected.items():
            if stored.get(name) != value:
                said = "offset version" if name == "v" else name.replace("_", " ")
                what = f"{said} {stored.get(name)!r}"
                raise LeaseError("CHECKPOINT_FOREIGN", what=what, expected=f"{said} {value!r} of this {self._about}")
        position = stored.get(last)
        if set(stored) != {*expected, last} or isinstance(position, bool) or not isinstance(position, int):
            raise LeaseError("CHECKPOINT_FOREIGN", what=f"offset {dict(stored)!r}", expected=f"an offset of this {self._about}")
        return type(self)(**{name: stored[name] for name in (*names, last)})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffset(_Offset):
    """How far a queue stream has come: the number of its latest lease, 0 before the first."""

    _about: ClassVar[str] = "queue stream"

    queue: str
    subscription: str
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffset(_Offset):
    """How far a topic stream has come: the first bookmark not yet read, -1 before the first batch (DESIGN 15.15)."""

    _about: ClassVar[str] = "topic stream"

    message_type: str
    topic: str
    bookmark: int = -1


#: Small record batches are joined up to this many rows: each costs the JVM a message of its own.
BATCH_ROWS = 32_768

#: Record batches aim to stay below this, so that large payloads do not fill an executor.
BATCH_BYTES = 32 * 1024 * 1024

_Array = NDArray[Any]

#: An Arrow array of the type that the schema wants; pyarrow's stubs cannot know it.
_Column = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePieces:
    """Ascending pieces of one message file; the arrays have one entry for each piece.

    They are numpy arrays because a pickled slice of an Arrow array carries the whole array along.
    """

    #: Relative to the message table.
    path: str
    #: Row of the file at which the piece starts.
    first_row: _Array
    rows: _Array
    #: Of the first row; the others follow one by one.
    bookmark: _Array
    delivery_count: _Array
    cancel_count: _Array
    is_barrier: _Array
    #: Arrays, too, and only of an instance: the number of the origin among those of the partition, and the bookmark there of the
    #: first row.
    origin: Any = None
    origin_bookmark: Any = None


class MessagePartition(InputPartition):
    """The share of a micro-batch or batch that one task reads."""

    def __init__(
        self, pieces: tuple[FilePieces, ...], *, lease: int = 0, leased_until_ms: int = 0, origins: tuple[str, ...] = ()
    ) -> None:
        super().__init__(None)
        self.pieces = pieces
        #: Names of the instances that its messages were first published to; empty in a journal that is no instance.
        self.origins = origins
        #: Number and end of the lease that every row of it stands under; 0 without one.
        self.lease = lease
        self.leased_until_ms = leased_until_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReader:
    """Reads partitions as record batches of exactly the schema that Spark asked for.

    Columns are taken by name and cast; a column that a file does not have yet reads as NULL.
    """

    files: ExecutorFiles
    schema: pa.Schema
    #: Only rows of this topic; None for the rows as the partition names them.
    topic: str | None = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, in its order.

        Raises
        ------
        JournalError
            MESSAGE_FILE_MISSING when a file is gone, MESSAGE_FILE_CORRUPT when it is damaged.
        """
        if not isinstance(partition, MessagePartition):
            # Spark plans one empty partition for a batch that has none.
            return iter(())
        return join_small(self._read_all(partition))

    def _read_all(self, partition: MessagePartition) -> Iterator[pa.RecordBatch]:
        open_file = self.files.opener()
        stored = set(self.schema.names) - _appended(partition).keys()
        if self.topic is not None:
            stored.add("topic")
        for pieces in partition.pieces:
            with open_file(pieces.path) as source:
                try:
                    for rows, chosen in _read_pieces(source, pieces, stored):
                        yield self._shape(rows, chosen, partition)
                except (pa.ArrowInvalid, OSError) as reason:
                    raise self.files.trouble(pieces.path, reason) from reason

    def _shape(self, rows: pa.RecordBatch, chosen: _Chosen, partition: MessagePartition) -> pa.RecordBatch:
        columns: list[_Column] = []
        there, appended = set(rows.schema.names), _appended(partition)
        for wanted in self.schema:
            if wanted.name in appended:
                columns.append(appended[wanted.name](chosen, partition))
            elif wanted.name in there:
                column = rows.column(wanted.name)
                columns.append(column if column.type == wanted.type else column.cast(wanted.type))
            else:
                columns.append(pa.nulls(rows.num_rows, wanted.type))
        shaped = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if self.topic is None:
            return shaped
        # Only here, since it takes 50 ms, and a query begins with three Pythons that import this module.
        import pyarrow.compute as pc

        return shaped.filter(pc.equal(rows.column("topic"), pa.scalar(self.topic)))


class PlanningReader:
    """Base of what plans a read: pickled for executors, nothing is left of it but what reads."""

    _reader: MessageReader

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_shipped, (self._reader,)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, as executors do."""
        return self._reader.read(partition)


def _as_shipped(reader: MessageReader) -> MessageReader:
    return reader


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """Which rows were taken: for each overlapped piece its index, the first row taken, and how many."""

    pieces: FilePieces
    index: _Array
    first_row: _Array
    counts: _Array

    def spread(self, values: _Array) -> _Column:
        """Return each row the value of its piece."""
        return _to_arrow(np.repeat(values[self.index], self.counts))

    def rows(self) -> _Array:
        """Return the numbers of the rows within the file."""
        return _count_up(self.first_row, self.counts)

    def bookmarks(self, first_of_piece: _Array) -> _Column:
        """Return each row its bookmark, here or at its origin, from that of the first row of its piece."""
        first = first_of_piece[self.index] + (self.first_row - self.pieces.first_row[self.index])
        return _to_arrow(_count_up(first, self.counts))

    def constant(self, value: int, kind: pa.DataType) -> _Column:
        return _to_arrow(np.full(int(self.counts.sum()), value, dtype=np.int64), kind)


_TIME = pa.timestamp("us", tz="UTC")

#: The columns that no file holds: name -> what makes them.
_APPENDED: dict[str, Callable[[_Chosen, MessagePartition], _Column]] = {
    "bookmark": lambda chosen, _: chosen.bookmarks(chosen.pieces.bookmark),
    "delivery_count": lambda chosen, _: chosen.spread(chosen.pieces.delivery_count),
    "cancel_count": lambda chosen, _: chosen.spread(chosen.pieces.cancel_count),
    "is_barrier": lambda chosen, _: chosen.spread(chosen.pieces.is_barrier),
    "lease": lambda chosen, partition: chosen.constant(partition.lease, pa.int64()),
    "leased_until": lambda chosen, partition: chosen.constant(partition.leased_until_ms * 1_000, _TIME),
}

#: Those of an instance; in any other journal a message may have columns of these names.
_APPENDED_BY_INSTANCE: dict[str, Callable[[_Chosen, MessagePartition], _Column]] = {
    **_APPENDED,
    "origin": lambda chosen, partition: _texts(partition.origins).take(chosen.spread(chosen.pieces.origin)),
    "origin_bookmark": lambda chosen, _: chosen.bookmarks(chosen.pieces.origin_bookmark),
}


def _appended(partition: MessagePartition) -> dict[str, Callable[[_Chosen, MessagePartition], _Column]]:
    return _APPENDED_BY_INSTANCE if partition.origins else _APPENDED


def _to_arrow(values: _Array, kind: pa.DataType | None = None) -> _Column:
    """Make a column of the bytes that lie there: `pa.array` loads pandas, which takes longer than all that a small task does."""
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little").data)])
    kind = kind or pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values).data)])


def _texts(values: Iterable[str]) -> _Column:
    stored = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, stored)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(stored), pa.py_buffer(ends.data), pa.py_buffer(b"".join(stored)))


def _to_numpy(column: _Column) -> _Array:
    """Return the values of a column of numbers or truths as they lie there, also below a NULL: `to_numpy` loads pandas."""
    values: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    kind, taken, (_, data) = values.type, slice(values.offset, values.offset + len(values)), values.buffers()
    if kind == pa.bool_():
        return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[taken].astype(np.bool_)
    stored: _Array = np.frombuffer(data, kind.to_pandas_dtype())[taken]
    return stored


def _count_up(first: _Array, counts: _Array) -> _Array:
    """Return first, first + 1, … for each entry, one after the other."""
    ends = np.cumsum(counts)
    counted: _Array = np.arange(ends[-1], dtype=np.int64) + np.repeat(first - (ends - counts), counts)
    return counted


def _read_pieces(source: pa.NativeFile, pieces: FilePieces, columns: Iterable[str]) -> Iterator[tuple[pa.RecordBatch, _Chosen]]:
    """Read the row groups that pieces lie in, and nothing else, a batch at a time."""
    file = pq.ParquetFile(source)
    stored = [name for name in file.schema_arrow.names if name in columns]
    until = pieces.first_row + pieces.rows
    start = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        if _overlaps(pieces.first_row, until, start, start + group.num_rows):
            position = start
            for batch in file.iter_batches(_batch_rows(group), row_groups=[number], columns=stored, use_threads=False):
                chosen = _choose(pieces, until, position, position + batch.num_rows)
                if chosen is not None:
                    yield _take(batch, chosen, position), chosen
                position += batch.num_rows
        start += group.num_rows
    if start < until[-1]:
        raise pa.ArrowInvalid(f"it has {start} rows instead of at least {until[-1]}")


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    bytes_per_row = max(1, group.total_byte_size // max(1, group.num_rows))
    return max(1, min(2 * BATCH_ROWS, BATCH_BYTES // bytes_per_row))


def _overlaps(first: _Array, until: _Array, start: int, end: int) -> bool:
    return bool(np.searchsorted(until, start, side="right") < np.searchsorted(first, end, side="left"))


def _choose(pieces: FilePieces, until: _Array, start: int, end: int) -> _Chosen | None:
    low = int(np.searchsorted(until, start, side="right"))
    high = int(np.searchsorted(pieces.first_row, end, side="left"))
    if low >= high:
        return None
    first = np.maximum(pieces.first_row[low:high], start)
    counts = np.minimum(until[low:high], end) - first
    return _Chosen(pieces=pieces, index=np.arange(low, high), first_row=first, counts=counts)


def _take(batch: pa.RecordBatch, chosen: _Chosen, position: int) -> pa.RecordBatch:
    if len(chosen.counts) == 1:
        return batch.slice(int(chosen.first_row[0]) - position, int(chosen.counts[0]))
    return batch.take(_to_arrow(chosen.rows() - position))


def join_small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join record batches until they are of `BATCH_ROWS` or `BATCH_BYTES`; larger ones stay as they are."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # type: ignore[attr-defined]  # The stubs lack it.


#: Most rows of a partition, give or take a quarter.
PARTITION_ROWS = 100_000

#: Handfuls of keys for each partition: so many keys, or so many parts of all keys, are spread one by one.
_HANDFULS = 64

_COLUMNS = ("first_row", "rows", "bookmark", "delivery_count", "cancel_count", "is_barrier")

#: Those of which a piece has the value of its first row, and each later row one more.
_COUNTED = ("first_row", "bookmark", "origin_bookmark")

_Columns = dict[str, NDArray[Any]]


def cut(pieces: pa.Table, *, min_partitions: int | None, lease: int = 0, leased_until_ms: int = 0) -> list[MessagePartition]:
    """Cut pieces into even partitions that keep their order, and the rows of a key together.

    Parameters
    ----------
    pieces
        As in `RowRanges`.
    min_partitions
        Fewest partitions, where there are as many rows; None for as few as `PARTITION_ROWS` allows.
    lease, leased_until_ms
        What the reader appends to each row.
    """
    columns: _Columns = {name: _to_numpy(pieces.column(name)) for name in _COLUMNS}
    if not len(columns["rows"]):
        return []
    names = pieces.column("path").combine_chunks().dictionary_encode()
    columns["path"] = _to_numpy(names.indices)
    paths = [str(path) for path in names.dictionary.to_pylist()]
    origins: tuple[str, ...] = ()
    if "origin" in pieces.column_names:
        instances = pieces.column("origin").combine_chunks().dictionary_encode()
        columns |= {"origin": _to_numpy(instances.indices), "origin_bookmark": _to_numpy(pieces.column("origin_bookmark"))}
        origins = tuple(map(str, instances.dictionary.to_pylist()))
    total = int(columns["rows"].sum())
    count = min(total, max(min_partitions or 1, -(-total // PARTITION_ROWS)))
    # A coordinator from before there were runs names no keys, and gives one row of each.
    keyed = count > 1 and "keys" in pieces.column_names
    shares = _shares_by_key(columns, pieces.column("keys"), count) if keyed else _shares(columns, count)
    return [
        MessagePartition(tuple(_by_file(share, paths)), lease=lease, leased_until_ms=leased_until_ms, origins=origins)
        for share in shares
    ]


def _shares_by_key(columns: _Columns, keys_of_pieces: Any, count: int) -> Iterator[_Columns]:
    """Yield each key to one partition; small keys go by the handful, so that the large ones can be spread evenly."""
    keys, handfuls = keys_of_pieces.combine_chunks().flatten(), _HANDFULS * count
    rows = np.arange(len(keys))
    handful = np.where(_to_numpy(keys.is_null()), rows % handfuls, _to_numpy(keys) % np.uint64(handfuls)).astype(np.int64)
    sizes, loads, partition = np.bincount(handful, minlength=handfuls), np.zeros(count), np.zeros(handfuls, dtype=np.int64)
    for largest in np.argsort(-sizes, kind="stable"):
        partition[largest] = np.argmin(loads)
        loads[partition[largest]] += sizes[largest]
    piece = np.repeat(np.arange(len(columns["rows"])), columns["rows"])
    offset = rows - np.repeat(np.cumsum(columns["rows"]) - columns["rows"], columns["rows"])
    for number in np.flatnonzero(loads):
        yield _joined_slices(columns, rows[partition[handful] == number], piece, offset)


def _joined_slices(columns: _Columns, rows: NDArray[Any], piece: NDArray[Any], offset: NDArray[Any]) -> _Columns:
    """Return some rows as pieces: those that follow each other in one piece are one again."""
    begins = np.r_[True, (np.diff(rows) != 1) | (np.diff(piece[rows]) != 0)]
    first = rows[begins]
    share = {name: values[piece[first]] for name, values in columns.items()}
    for name in share.keys() & _COUNTED:
        share[name] += offset[first]
    share["rows"] = np.diff(np.r_[np.flatnonzero(begins), len(rows)])
    return share


def _shares(columns: _Columns, count: int) -> Iterator[_Columns]:
    ends = np.cumsum(columns["rows"])
    starts = ends - columns["rows"]
    cuts = _cuts(ends, count)
    for start, end in pairwise(cuts.tolist()):
        low = int(np.searchsorted(ends, start, side="right"))
        high = int(np.searchsorted(starts, end, side="left"))
        share = {name: values[low:high].copy() for name, values in columns.items()}
        skipped = start - starts[low]
        for name in share.keys() & _COUNTED:
            share[name][0] += skipped
        share["rows"][0] -= skipped
        share["rows"][-1] -= ends[high - 1] - end
        yield share


def _cuts(ends: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the row counts at which partitions begin and end.

    A cut moves to the nearest end of a piece when that is close: otherwise two tasks would decode one row group.
    """
    total = int(ends[-1])
    even = np.arange(1, count, dtype=np.int64) * total // count
    after = np.searchsorted(ends, even)
    before = np.maximum(after - 1, 0)
    nearest = np.where(ends[after] - even < even - ends[before], ends[after], ends[before])
    near = np.abs(nearest - even) <= total // count // 4
    return np.unique(np.concatenate([[0], np.where(near, nearest, even), [total]]))


def _by_file(share: _Columns, paths: list[str]) -> Iterator[FilePieces]:
    """Group pieces that lie in one file, one after the other; a step back within a file begins a new group."""
    path, first_row = share["path"], share["first_row"]
    breaks = np.flatnonzero((path[1:] != path[:-1]) | (first_row[1:] < first_row[:-1])) + 1
    for low, high in zip([0, *breaks], [*breaks, len(path)], strict=True):
        yield FilePieces(path=paths[path[low]], **{name: values[low:high] for name, values in share.items() if name != "path"})
