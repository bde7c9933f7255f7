"""Rows of a batch as Parquet files beside the table that they are for; no commit names them yet (DESIGN 19).

Runs in Spark's tasks, which load nothing of ours but this. Files lie flat: Delta keeps the values of partition columns in the
log, so paths need no folders and nothing in them has to be escaped.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_queue.errors import CallerError
from spark_queue.journal.parquet_bounds import bounded_columns

if TYPE_CHECKING:
    from spark_queue.journal.store import Store

#: The rows that a task holds before it writes the largest of its files, in bytes.
BUFFER_BYTES = 128 * 1024 * 1024

#: The defaults of delta-spark: the number of columns with statistics, and the length of a text in them.
STATISTICS_COLUMNS = 32
TEXT_LENGTH = 32

_LAST_CHARACTER = "\U0010ffff"

#: Types of which a file may have bounds in the log.
_ORDERED = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_floating, pa.types.is_boolean, pa.types.is_integer,
    pa.types.is_decimal, pa.types.is_date, pa.types.is_timestamp,
)  # fmt: skip

#: Digits of a decimal that are kept by readers which make a floating number of it.
_EXACT_DIGITS = 15

#: Decimals become numbers with all their digits.
_ENCODER = msgspec.json.Encoder(decimal_format="number")

#: The name of the column of files in a group, which no user's column can have.
_ROW = "__row"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """The place and the columns by which a batch is staged; picklable."""

    store: Store
    #: The table's folder in the store.
    key: str
    #: All columns of the table, as Arrow has them.
    schema: pa.Schema
    partition_by: tuple[str, ...]
    #: That of the table's metadata: another table in its place has other files.
    table_id: str

    def stage(self, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a task's rows, a file for each combination of partition values, and yield the files, as JSON.

        `names` are those of the rows' columns.
        """
        held: dict[tuple[str | None, ...], list[pa.Table]] = {}
        files: list[SinkFile] = []
        for batch in batches:
            if batch.num_rows:
                for values, rows in _parted(self, _cast(self, names, batch)):
                    held.setdefault(values, []).append(rows)
            while sum(map(_size, held.values())) > BUFFER_BYTES:
                largest = max(held, key=lambda values: _size(held[values]))
                files.append(_write(self, largest, held.pop(largest)))
        files += [_write(self, values, parts) for values, parts in held.items()]
        yield pa.RecordBatch.from_pydict({"file": pa.array([msgspec.json.encode(file).decode() for file in files], pa.string())})


class SinkFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that waits for its commit, as its task reports it to the driver."""

    #: Relative to the table.
    path: str
    size_bytes: int
    #: Of its rows in memory.
    memory_bytes: int
    row_count: int
    #: Values of the partition columns, as Delta writes them.
    partition_values: dict[str, str | None]
    #: Delta's statistics in JSON; decimals are numbers with all their digits.
    stats: str


def _size(parts: list[pa.Table]) -> int:
    return sum(part.nbytes for part in parts)


def _cast(plan: SinkPlan, names: Sequence[str], batch: pa.RecordBatch) -> pa.Table:
    """Give a batch the table's columns, in its order; instants come in the time zone of the session."""
    rows = pa.Table.from_batches([batch])
    places = {name.lower(): number for number, name in enumerate(names)}
    columns: list[Any] = []
    for field in plan.schema:
        place = places.get(field.name.lower())
        try:
            columns.append(pa.nulls(rows.num_rows, field.type) if place is None else rows.column(place).cast(field.type))
        except pa.ArrowException as reason:
            # The types are the same, but for parts that may not be NULL.
            raise _refused(plan, f"column '{field.name}' cannot be written: {reason}.") from None
        if columns[-1].null_count and not field.nullable:
            raise _without_value(plan, field.name, "NULL")
    return pa.table(columns, names=plan.schema.names)


def _without_value(plan: SinkPlan, column: str, found: str) -> CallerError:
    """Make the error of a row that lacks a value which has to be there."""
    return _refused(plan, f"column '{column}' is {found} in a row, and may not be in the table.")


def _refused(plan: SinkPlan, reason: str) -> CallerError:
    return CallerError("SINK_SCHEMA_DIFFERS", table=plan.store.uri(plan.key), reason=reason, next_step="Leave such rows out.")


def _parted(plan: SinkPlan, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    if not plan.partition_by:
        yield (), rows
        return
    keys: Any = rows.select(plan.partition_by).append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    grouped = keys.group_by(list(plan.partition_by), use_threads=False).aggregate([(_ROW, "list")])
    content = rows.drop_columns(list(plan.partition_by))
    for group in range(grouped.num_rows):
        values = tuple(partition_text(grouped.column(name)[group].as_py()) for name in plan.partition_by)
        for name, value in zip(plan.partition_by, values, strict=True):
            if value is None and not plan.schema.field(name).nullable:
                raise _without_value(plan, name, "empty")
        yield values, content.take(grouped.column(f"{_ROW}_list")[group].values)


def partition_text(value: Any) -> str | None:
    """Return a partition value as Delta's log keeps it; an empty text and NULL are the same there."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, datetime):
        local = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return local.isoformat(sep=" ") if value.tzinfo is None else f"{local.isoformat(timespec='microseconds')}Z"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _write(plan: SinkPlan, values: tuple[str | None, ...], parts: list[pa.Table]) -> SinkFile:
    rows = pa.concat_tables(parts)
    path = f"part-{uuid.uuid4().hex}.parquet"
    key = f"{plan.key}/{path}"
    with plan.store.writer(key) as sink:
        bounded = list(bounded_columns(rows.schema))
        pq.write_table(rows, cast(Any, sink), compression="snappy", store_schema=False, write_statistics=bounded)
        size_bytes = sink.tell()
    # A file that the log names must outlive a power loss as the acknowledgement does.
    plan.store.sync([key])
    return SinkFile(
        path=path,
        size_bytes=size_bytes,
        memory_bytes=rows.nbytes,
        row_count=rows.num_rows,
        partition_values=dict(zip(plan.partition_by, values, strict=True)),
        stats=_ENCODER.encode(statistics(rows)).decode(),
    )


def statistics(rows: pa.Table) -> dict[str, Any]:
    """Return Delta's statistics of a file; a column without an order, or without a form there, has no bounds.

    Where a column has an order and yet no bounds, none has: delta-rs's datasets take bounds that are missing among others for those
    of a file without any value that is looked for (tried).
    """
    bounds: dict[str, tuple[Any, Any] | None] = {}
    nulls: dict[str, int] = {}
    for name in rows.column_names[:STATISTICS_COLUMNS]:
        column: Any = rows.column(name)
        if pa.types.is_struct(column.type):
            # Delta wants them by the fields within; without any, a reader looks into the file.
            continue
        nulls[name] = column.null_count
        if any(test(column.type) for test in _ORDERED) and column.null_count < len(column):
            bounds[name] = _bounds(column)
    known = {name: found for name, found in bounds.items() if found is not None}
    found = {"numRecords": rows.num_rows, "nullCount": nulls}
    if len(known) < len(bounds):
        return found
    low, high = ({name: each[end] for name, each in known.items()} for end in (0, 1))
    return {**found, "minValues": low, "maxValues": high}


def _bounds(column: Any) -> tuple[Any, Any] | None:
    """Return the lowest and the highest value of a column that has some; None where Delta's log has no form for them."""
    kind = column.type
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        # Spark has it above all others, and other readers nowhere.
        return None
    found = pc.min_max(column)
    try:
        low, high = found["min"].as_py(), found["max"].as_py()
    except (ValueError, OverflowError):
        # A year that Python does not have.
        return None
    if isinstance(low, str):
        return low[:TEXT_LENGTH], _above(high)
    if isinstance(low, float):
        # The two zeros are one number, and some readers order them.
        return _number(low or -0.0), _number(high or 0.0)
    if isinstance(low, Decimal) and max(len(each.as_tuple().digits) for each in (low, high)) > _EXACT_DIGITS:
        return None
    if isinstance(low, datetime):
        return _instant(low), _instant(high, up=True)
    return (low.isoformat(), high.isoformat()) if isinstance(low, date) else (low, high)


def _number(value: float) -> float | str:
    """Return a number as Delta's log has it: JSON has none that is infinite."""
    return value if math.isfinite(value) else f"{'-' * (value < 0)}Infinity"


def _above(text: str) -> str:
    """Return a short text that is not below a long one."""
    if len(text) <= TEXT_LENGTH:
        return text
    end = TEXT_LENGTH
    while end < len(text) and text[end] == _LAST_CHARACTER:
        end += 1
    return text if end == len(text) else text[:end] + _LAST_CHARACTER


def _instant(value: datetime, *, up: bool = False) -> str:
    """Return an instant in milliseconds, as Delta keeps them: the range is widened to them, never narrowed."""
    beyond = value.microsecond % 1000
    try:
        shown = value - timedelta(microseconds=beyond) + timedelta(milliseconds=1 if up and beyond else 0)
        text = shown.replace(tzinfo=None).isoformat(timespec="milliseconds")
    except OverflowError:
        # The last millisecond that a text can have.
        text = value.replace(tzinfo=None).isoformat()
    return text if value.tzinfo is None else f"{text}Z"
