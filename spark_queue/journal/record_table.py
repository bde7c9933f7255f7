"""Records as rows of the control log, in a data file or in an entry: one schema, one way there and one way back (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_queue.core.bitmaps.ranges import RangeArray
from spark_queue.core.records import BODIES, BODY_VERSION, Body, Record, Unread, kinds_with
from spark_queue.journal.schema import schema_of
from spark_queue.journal.sql_types import INSTANT

_RANGE = pa.struct([pa.field("first", pa.int64(), nullable=False), pa.field("until", pa.int64(), nullable=False)])
CONTROL_SCHEMA = schema_of(
    pa.field("record", pa.int64(), nullable=False),
    pa.field("epoch", pa.int64(), nullable=False),
    pa.field("at", INSTANT, nullable=False),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("message_type", pa.string()),
    pa.field("queue", pa.string()),
    pa.field("subscription", pa.string()),
    pa.field("lease", pa.int64()),
    pa.field("ranges", pa.list_(pa.field("element", _RANGE))),
    pa.field("reason", pa.string()),
    pa.field("due_at", INSTANT),
    pa.field("detail", pa.string(), nullable=False),
)

#: Columns that a record has under the same name, as they are.
_PLAIN = ("record", "epoch", "kind", "message_type", "queue", "subscription", "lease", "reason")
_plain_of = attrgetter(*_PLAIN)

#: All columns but the ranges.
_FLAT = (*_PLAIN, "at", "due_at", "detail")

#: Kinds whose records stand in files of their own, so that statistics alone find them.
SEPARATE_KINDS = kinds_with(lambda body: body.separate)
_MICROSECONDS = 1_000

#: How the stored bodies of most records begin: other software may order their facts otherwise.
_HEADS = (f'{{"v":{BODY_VERSION},', f'{{"v":{BODY_VERSION}}}')


class NewerDetailError(Exception):
    """A record's detail has a version that this software does not know; the control log names it to the caller."""

    def __init__(self, kind: str, record: int) -> None:
        super().__init__(f"record {record} of kind {str(kind)[:50]!r}")


class DetailError(Exception):
    """A record's detail is none of its kind."""

    def __init__(self, kind: str, record: int, fault: str) -> None:
        super().__init__(fault)
        self.record = f"record {record} ({kind[:50]})"


class _Head(msgspec.Struct):
    """The part of a detail that every kind has."""

    v: int
    critical: bool = False


#: A number that fits its column.
_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: A time that does so in microseconds.
_TimeMs = Annotated[int, msgspec.Meta(ge=-(2**63) // _MICROSECONDS, le=2**63 // _MICROSECONDS - 1)]


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row as an entry of the log holds it: the columns of the table, times in milliseconds, NULLs left out."""

    record: _Number
    epoch: _Number
    at: _TimeMs
    kind: str
    detail: str
    message_type: str | None = None
    queue: str | None = None
    subscription: str | None = None
    lease: _Number | None = None
    ranges: Sequence[tuple[_Number, _Number]] = ()
    reason: str | None = None
    due_at: _TimeMs | None = None


def to_row(record: Record) -> Row:
    """Make the row of a record."""
    return Row(
        record=record.record, epoch=record.epoch, at=record.at_ms, kind=record.kind, detail=detail_of(record),
        message_type=record.message_type, queue=record.queue, subscription=record.subscription, lease=record.lease,
        ranges=record.ranges, reason=record.reason, due_at=record.due_at_ms,
    )  # fmt: skip


def rows_of(stored: Any) -> tuple[Row, ...]:
    """Return the rows that an entry holds; what is none raises msgspec.ValidationError."""
    return msgspec.convert(stored, tuple[Row, ...])


def rows_to_table(rows: Sequence[Row]) -> pa.Table:
    """Make a table of rows."""
    flat = [(*_plain_of(row), _instant(row.at), _instant(row.due_at), row.detail) for row in rows]
    columns: dict[str, Any] = dict(zip(_FLAT, zip(*flat, strict=True) if flat else [()] * len(_FLAT), strict=True))
    arrays = {name: _array(values, CONTROL_SCHEMA.field(name).type) for name, values in columns.items()}
    arrays["ranges"] = _ranges([row.ranges for row in rows])
    return pa.Table.from_arrays([arrays[name] for name in CONTROL_SCHEMA.names], schema=CONTROL_SCHEMA)


def to_table(records: Sequence[Record]) -> pa.Table:
    """Make a table of the rows of records."""
    return rows_to_table([to_row(record) for record in records])


def _array(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Make a column of texts or numbers; `pa.array` loads pandas first, which takes longer than reading a log."""
    is_there = np.fromiter((value is not None for value in values), np.bool_, len(values))
    validity = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little").tobytes())
    if kind != pa.string():
        return _numbers(np.array([0 if value is None else value for value in values], dtype=np.int64), kind, validity)
    texts = [b"" if value is None else value.encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(texts))])


def _instant(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * _MICROSECONDS


def detail_of(record: Record) -> str:
    """Return the detail of a record as it is stored, or will be."""
    if record.stored:
        return record.stored
    assert not isinstance(record.body, Unread), "only kinds that are known are written"
    facts = msgspec.json.encode(record.body).decode()[1:]
    critical = ',"critical":true' if record.body.critical else ""
    return f'{{"v":{BODY_VERSION}{critical}' + ("" if facts == "}" else ",") + facts


def read_body(kind: str, detail: str, record: int) -> Body:
    """Read the body of a stored detail; one with a fault says so."""
    known = BODIES.get(kind)
    try:
        if known is None or not detail.startswith(_HEADS):
            head = msgspec.json.decode(detail, type=_Head)
            if head.v > BODY_VERSION:
                raise NewerDetailError(kind, record)
            if known is None:
                return Unread(name=kind, must_be_known=head.critical)
        return msgspec.json.decode(detail, type=known)
    except msgspec.DecodeError as reason:
        return Unread(name=kind, fault=f"its detail is wrong: {reason}.")


def to_records(table: pa.Table) -> Iterator[Record]:
    """Read the records of rows, in the rows' order; refuse a detail that is none of its kind."""
    for record in to_unchecked_records(table):
        if isinstance(record.body, Unread) and record.body.fault is not None:
            raise DetailError(record.kind, record.record, record.body.fault)
        yield record


def to_unchecked_records(table: pa.Table) -> Iterator[Record]:
    """Read the records of rows of a stranger: each that has a fault says so where it stands."""
    for batch in table.to_batches():
        yield from _batch_records(batch)


def _ranges(lists: Sequence[Sequence[tuple[int, int]]]) -> pa.Array[Any]:
    edges = np.concatenate([_edges(ranges) for ranges in lists]) if lists else np.empty(0, dtype=np.int64)
    offsets = np.cumsum([0, *(len(ranges) for ranges in lists)], dtype=np.int32)
    firsts, untils = (_numbers(edges[start::2], pa.int64()) for start in (0, 1))
    kind: Any = CONTROL_SCHEMA.field("ranges").type
    found: pa.Array[Any] = pa.ListArray.from_arrays(
        _numbers(offsets, pa.int32()), pa.StructArray.from_arrays([firsts, untils], fields=list(_RANGE)), type=kind
    )
    return found


def _numbers(values: NDArray[Any], kind: pa.DataType, validity: pa.Buffer | None = None) -> Any:
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values.tobytes())])


def _batch_records(batch: pa.RecordBatch) -> Iterator[Record]:
    columns: dict[str, Any] = {name: batch.column(name) for name in CONTROL_SCHEMA.names}
    at, due_at = (columns[name].view(pa.int64()).to_pylist() for name in ("at", "due_at"))
    ranges = _range_arrays(columns["ranges"])
    details = columns["detail"].to_pylist()
    plain = [columns[name].to_pylist() for name in _PLAIN]
    # Not by name: a start reads a hundred thousand of them.
    for i, (record, epoch, kind, message_type, queue, subscription, lease, reason) in enumerate(zip(*plain, strict=True)):
        yield Record(
            body=read_body(kind, details[i], record),
            record=record,
            epoch=epoch,
            at_ms=at[i] // _MICROSECONDS,
            message_type=message_type,
            queue=queue,
            subscription=subscription,
            lease=lease,
            ranges=ranges[i],
            reason=reason,
            due_at_ms=None if due_at[i] is None else due_at[i] // _MICROSECONDS,
            stored=details[i],
        )


def _edges(ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return ranges.edges if isinstance(ranges, RangeArray) else np.array(ranges, dtype=np.int64).reshape(-1)


def _range_arrays(lists: Any) -> list[RangeArray]:
    if lists.null_count:
        # What stands behind a NULL counts for nothing; only a stranger writes one.
        lengths = lists.value_lengths().fill_null(0).to_pylist()
        lists = pa.ListArray.from_arrays(_numbers(np.cumsum([0, *lengths], dtype=np.int32), pa.int32()), lists.flatten())
    # By offsets: functions of pyarrow for lists load `pyarrow.compute`, which costs a receiver more memory than its own modules.
    ends = np.from_dlpack(lists.offsets)
    pairs = lists.values.slice(ends[0], ends[-1] - ends[0])
    edges = np.empty(2 * len(pairs), dtype=np.int64)
    edges[::2], edges[1::2] = np.from_dlpack(pairs.field("first")), np.from_dlpack(pairs.field("until"))
    places = (2 * (ends - ends[0])).tolist()
    return [RangeArray(edges[start:end]) for start, end in pairwise(places)]
