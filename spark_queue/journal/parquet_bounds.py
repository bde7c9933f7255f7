"""The columns of a Parquet file that have statistics: those with bounds that every reader understands alike.

pyarrow writes bounds of numbers as if NaN were not there, while Spark and DuckDB have NaN above all others: they pass over rows
with it that they look for. So columns of FLOAT and DOUBLE, at every depth, have none. Delta's log has those of a whole file.
"""

from __future__ import annotations

import functools
import io

import pyarrow as pa
import pyarrow.parquet as pq

_FLOATING = frozenset({"FLOAT", "DOUBLE"})


@functools.lru_cache(maxsize=256)
def bounded_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the Parquet paths of the columns that have statistics, for `write_statistics` of pyarrow's writers."""
    # Paths are as the writer makes them, so it is asked.
    empty = io.BytesIO()
    pq.write_table(schema.empty_table(), empty)
    leaves = pq.ParquetFile(empty).schema
    paths = [(leaves.column(number).path, leaves.column(number).physical_type) for number in range(len(leaves))]
    # A path with points may name two columns.
    floating = {path for path, kind in paths if kind in _FLOATING}
    return tuple(path for path, _ in paths if path not in floating)
