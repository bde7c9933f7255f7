"""Reading the bodies of chosen messages from message files, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import from_array
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment, stretches
from spark_queue.journal.conversion import far_time
from spark_queue.journal.file_columns import columns_of
from spark_queue.journal.folder import of_segment
from spark_queue.journal.opening import opened
from spark_queue.journal.store import Store

Bookmarks = NDArray[np.int64]
_WITHOUT_BODIES = "Look at a later moment, or choose columns that the queue knows, such as bookmark and state."


def read_bodies(store: Store, message_type: MessageTypeState, bookmarks: Bookmarks, schema: pa.Schema) -> pa.Table:
    """Return columns of messages by ascending bookmarks, all of them entered; a column that a file does not have yet is NULL."""
    pieces = [schema.empty_table()]
    overlapping = _overlapping(message_type.segments, bookmarks)
    for segment in overlapping:
        gone = BitMap64() if segment.is_whole else from_array(bookmarks) & segment.let_go
        if gone:
            raise message_type.retired_error(gone.min(), end=int(bookmarks[-1]) + 1, next_step=_WITHOUT_BODIES)
    for segment in stretches(overlapping):
        low, high = np.searchsorted(bookmarks, [segment.first, segment.until])
        pieces.append(_read_rows(store, segment, bookmarks[low:high] - segment.first + segment.first_row, schema))
    return pa.concat_tables(pieces)


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows for people: a time of a year that Python does not have is its text, so that one value hides no others."""
    try:
        return table.to_pylist()
    except (ValueError, OverflowError):
        columns = [[_python_value(value) for value in table.column(name)] for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_value(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        kind = value.type
    if types.is_struct(kind):
        return {name: _python_value(part) for name, part in value.items()}
    if types.is_map(kind):
        return [(_python_value(pair["key"]), _python_value(pair["value"])) for pair in value.values]
    if types.is_list(kind):
        return [_python_value(part) for part in value.values]
    return far_time(value) if types.is_temporal(kind) else value.as_buffer().to_pybytes().decode(errors="replace")


def _overlapping(segments: list[Segment], bookmarks: Bookmarks) -> list[Segment]:
    if not len(segments) or not len(bookmarks):
        return []
    firsts = np.fromiter((segment.first for segment in segments), np.int64, len(segments))
    used = np.unique(np.searchsorted(firsts, bookmarks, side="right") - 1)
    return [segments[index] for index in used]


def _read_rows(store: Store, segment: Segment, rows: Bookmarks, schema: pa.Schema) -> pa.Table:
    folder, of_file = of_segment(store, segment), columns_of(segment)
    with opened(folder, segment.path) as file:
        held = file.metadata.num_rows
        of_file.check(folder, segment.path, held)
        pieces = list(_chosen_rows(file, rows, of_file.stored(schema.names, file.schema_arrow.names)))
    if rows[-1] >= held:
        raise folder.corrupt(segment.path, f"it has {held} rows instead of at least {rows[-1] + 1}.")
    found = pa.concat_tables(pieces)
    columns = [of_file.filled(found, field.name, field.type, len(rows), lambda: rows) for field in schema]
    return pa.table(columns, schema=schema)


def _chosen_rows(file: pq.ParquetFile, rows: Bookmarks, names: list[str]) -> Iterator[pa.Table]:
    """Read the row groups that hold the rows, and no others."""
    start = 0
    for number in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(number).num_rows
        low, high = np.searchsorted(rows, [start, start + count])
        if low < high:
            group = file.read_row_group(number, columns=names)
            yield group if high - low == count else group.take(rows[low:high] - start)
        start += count
