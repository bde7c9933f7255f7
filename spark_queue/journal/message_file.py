"""Columns of the messages of a segment, read from the file that holds them now (DESIGN 4: compaction puts many in one file)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.core.message_files.segment import Segment
from spark_queue.declared_types import declared_column
from spark_queue.errors import SparkQueueError
from spark_queue.journal.file_columns import columns_of
from spark_queue.journal.folder import of_segment
from spark_queue.journal.opening import opened
from spark_queue.journal.schema import ENVELOPE, user_schema
from spark_queue.journal.store import Store

#: Most of a file that is in memory at once, where a row group alone is not more.
PIECE_ROWS = 131_072
PIECE_BYTES = 128 * 1024 * 1024


class MessageFiles:
    """Reads segments' columns; a merged file is read once for all the segments in it, asked for one after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The merged file that was read last, and its columns.
        self._last: tuple[str, pa.Table] = ("", pa.table({}))

    def read(self, segment: Segment, columns: Sequence[str] | None) -> pa.Table:
        """Return columns of the segment's rows, None for all; one that the file does not have is left out."""
        if segment.table is not None and columns is not None:
            return pa.concat_tables(self.pieces(segment, columns))
        folder = of_segment(self._store, segment)
        key = folder.key_of(segment.path)
        known, rows = self._last
        if known != key or columns is None or not set(columns) <= set(rows.column_names):
            with opened(folder, segment.path) as file:
                rows = file.read(columns=None if columns is None else _standing(file, columns))
        found = rows.slice(segment.first_row, segment.row_count)
        until = segment.first_row + segment.row_count
        if len(rows) < until or (len(rows) != until and not segment.merged):
            raise folder.corrupt(segment.path, f"it has {len(rows)} rows instead of {until}.")
        self._last = (key, rows) if len(rows) > until else ("", pa.table({}))
        there = set(found.column_names)
        return found if columns is None else found.select([name for name in columns if name in there])

    def pieces(self, segment: Segment, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of the segment's rows part by part, so that a large file is never in memory as a whole.

        A file of its own comes by some row groups at once, and so does a part of a followed table's file; a merged one, which
        compaction keeps small, as `read` gives it.
        """
        if segment.merged and segment.table is None:
            yield self.read(segment, columns)
            return
        with opened(of_segment(self._store, segment), segment.path) as file:
            self._check(segment, file)
            start, until = 0, segment.first_row + segment.row_count
            for groups in row_groups_in_pieces(file.metadata):
                count = sum(file.metadata.row_group(number).num_rows for number in groups)
                low, high = max(segment.first_row - start, 0), min(until - start, count)
                if low < high:
                    yield _read_groups(segment, file, groups, columns, start=start).slice(low, high - low)
                start += count

    def is_far(self, segment: Segment) -> bool:
        """Return whether its file stands in an object store, where reading is waiting."""
        return not of_segment(self._store, segment).store.is_local

    def check_size(self, segment: Segment) -> None:
        """Look into a file of its own that is said to be large before something as large is made for it.

        It raises what `pieces` raises.
        """
        if segment.row_count <= PIECE_ROWS or segment.merged:
            return
        with opened(of_segment(self._store, segment), segment.path) as file:
            self._check(segment, file)

    def _check(self, segment: Segment, file: pq.ParquetFile) -> None:
        rows, until = file.metadata.num_rows, segment.first_row + segment.row_count
        if rows < until or (rows != until and not segment.merged):
            raise of_segment(self._store, segment).corrupt(segment.path, f"it has {rows} rows instead of {until}.")


def _read_groups(segment: Segment, file: pq.ParquetFile, groups: list[int], columns: Sequence[str], *, start: int) -> pa.Table:
    """Return columns of row groups of a file, the first of which begins at row `start`; one that it does not have is left out."""
    of_file = columns_of(segment)
    rows = file.read_row_groups(groups, columns=of_file.stored(columns, file.schema_arrow.names))
    count = sum(file.metadata.row_group(number).num_rows for number in groups)
    kinds = _kinds_of_values(segment) if of_file.values else {}
    asked = {name: of_file.column(rows, name, kinds.get(name), count, lambda: np.arange(start, start + count)) for name in columns}
    found = {name: column for name, column in asked.items() if column is not None}
    return pa.table(found or {"": pa.nulls(count)}).select(list(found))


def _kinds_of_values(segment: Segment) -> dict[str, pa.DataType]:
    """Return the types of columns of a followed table that may stand in no file."""
    kinds = {field.name: field.type for field in ENVELOPE}
    columns = [] if segment.table is None else [each for each in segment.table.columns if each[0] not in segment.table.texts]
    for name, physical, kind in columns:
        if physical in segment.partition:
            kinds[name] = user_schema(f"`column` {kind}").field(0).type
    return kinds


def _standing(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    there = set(file.schema_arrow.names)
    return [name for name in columns if name in there]


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with exactly the columns of a schema; one that their file does not have is NULL."""
    return pa.table([declared_column(rows, field.name, field.type) for field in schema], schema=schema)


def row_groups_in_pieces(file: pq.FileMetaData) -> Iterator[list[int]]:
    """Yield the row groups of a file in pieces: evaluating an expression costs milliseconds, however few rows there are."""
    groups: list[int] = []
    rows = size_bytes = 0
    for number in range(file.num_row_groups):
        group = file.row_group(number)
        if groups and (rows + group.num_rows > PIECE_ROWS or size_bytes + group.total_byte_size > PIECE_BYTES):
            yield groups
            groups, rows, size_bytes = [], 0, 0
        groups.append(number)
        rows, size_bytes = rows + group.num_rows, size_bytes + group.total_byte_size
    if groups:
        yield groups


@contextmanager
def fitting(store: Store, segment: Segment) -> Iterator[None]:
    """Refuse a file with other columns than its message type, whatever they make libraries raise."""
    try:
        yield
    except SparkQueueError:
        raise
    except Exception as raised:
        reason = f"its columns are not those of the message type ({type(raised).__name__}: {store.reason(raised)})."
        raise of_segment(store, segment).corrupt(segment.path, reason) from raised
