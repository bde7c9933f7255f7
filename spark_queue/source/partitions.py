"""Code of executors: reading the rows of a lease, or of a range of a topic, from message files.

Executors talk to nobody; a partition names files and rows and carries the values that a reader appends. This module imports pyarrow
and numpy only, because every Python worker of a cluster loads it before its first row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from spark_queue.journal.file_columns import FileColumns
    from spark_queue.journal.folder import Folder
    from spark_queue.journal.store import Store

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

    #: Relative to the message table, or to the one that the message type follows.
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
    #: How the columns of a file of a followed table are found, as a text; None for a file of the journal.
    columns: str | None = None


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

    store: Store
    message_type: str
    schema: pa.Schema
    #: The table that the message type follows, with the options to reach it: executors have no file of stores.
    table: Folder | None = None
    #: Only rows of this topic; None for the rows as the partition names them.
    topic: str | None = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, in its order."""
        if not isinstance(partition, MessagePartition):
            # Spark plans one empty partition for a batch that has none.
            return iter(())
        return join_small(self._read_all(partition))

    def _read_all(self, partition: MessagePartition) -> Iterator[pa.RecordBatch]:
        # Planning pickles this reader, and never opens a file.
        from spark_queue.journal.file_columns import from_text
        from spark_queue.journal.folder import of_type
        from spark_queue.journal.opening import opened_in_turn

        stored = set(self.schema.names) - _appended(partition).keys()
        if self.topic is not None:
            stored.add("topic")
        own = of_type(self.store, self.message_type)
        # Each piece says itself whether its file is in the table.
        places = [(own if pieces.columns is None or self.table is None else self.table, pieces.path) for pieces in partition.pieces]
        for pieces, (folder, path), opened in zip(partition.pieces, places, opened_in_turn(places), strict=True):
            columns = from_text(pieces.columns)
            with opened as file:
                columns.check(folder, path, file.metadata.num_rows)
                for rows, chosen in _read_pieces(file, pieces, columns.stored(stored, file.schema_arrow.names)):
                    yield self._shape(rows, columns, chosen, partition)

    def _shape(self, rows: pa.RecordBatch, of_file: FileColumns, chosen: _Chosen, partition: MessagePartition) -> pa.RecordBatch:
        columns: list[_Column] = []
        appended, count = _appended(partition), int(chosen.counts.sum())
        for wanted in self.schema:
            if wanted.name in appended:
                columns.append(appended[wanted.name](chosen, partition))
            else:
                columns.append(of_file.filled(rows, wanted.name, wanted.type, count, chosen.rows))
        shaped = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if self.topic is None or self.topic == of_file.values.get("topic"):
            return shaped
        # Only here, since it takes 50 ms, and a query begins with three Pythons that import this module.
        import pyarrow.compute as pc

        return shaped.filter(pc.equal(rows.column("topic"), pa.scalar(self.topic)))


class PlanningReader:
    """Base of a read's planning side: pickled for executors, nothing is left of it but the reader of its partitions."""

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
    """The chosen rows: for each overlapped piece its index, the first row chosen, and their number."""

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

#: The columns that no file holds, each with the function that makes it.
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
    """Make a column of the bytes that lie there: `pa.array` loads pandas, which takes longer than all the work of a small task."""
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little").data)])
    kind = kind or pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values).data)])


def _texts(values: Iterable[str]) -> _Column:
    stored = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, stored)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(stored), pa.py_buffer(ends.data), pa.py_buffer(b"".join(stored)))


def to_numpy(column: _Column) -> _Array:
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


def _read_pieces(file: pq.ParquetFile, pieces: FilePieces, stored: list[str]) -> Iterator[tuple[pa.RecordBatch, _Chosen]]:
    """Read the stored columns of the row groups that pieces lie in, and nothing else, a batch at a time."""
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
