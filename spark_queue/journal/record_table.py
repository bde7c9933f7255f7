"""Records as rows of the control log: one Arrow schema, one way there and one way back (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_queue.core.bitmaps.ranges import RangeArray
from spark_queue.core.records import BODIES, BODY_VERSION, Body, Record, Unread, kinds_with
from spark_queue.journal.schema import INSTANT, schema_of

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
_FLAT = pa.struct([CONTROL_SCHEMA.field(name) for name in (*_PLAIN, "at", "due_at", "detail")])

#: Kinds whose records stand in files of their own, so that statistics alone find them.
SEPARATE_KINDS = kinds_with(lambda body: body.separate)
_MICROSECONDS = 1_000

#: The beginning of a stored body, by whether software that does not know its kind must refuse the log.
_HEADS = {False: f'{{"v":{BODY_VERSION}', True: f'{{"v":{BODY_VERSION},"critical":true'}


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


def to_table(records: Sequence[Record]) -> pa.Table:
    """Make the rows of records."""
    rows = [(*_plain_of(record), _instant(record.at_ms), _instant(record.due_at_ms), detail_of(record)) for record in records]
    # As one column of structs: Arrow takes as long for that as for each column alone, and every commit waits for it.
    structs: Any = pa.array(rows, _FLAT)
    columns = dict(zip(_FLAT.names, structs.flatten(), strict=True))
    columns["ranges"] = _ranges([record.ranges for record in records])
    return pa.Table.from_arrays([columns[name] for name in CONTROL_SCHEMA.names], schema=CONTROL_SCHEMA)


def _instant(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * _MICROSECONDS


def detail_of(record: Record) -> str:
    """Return the detail of a record as it is stored, or will be."""
    if record.stored:
        return record.stored
    assert not isinstance(record.body, Unread), "only kinds that are known are written"
    facts = msgspec.json.encode(record.body).decode()[1:]
    return _HEADS[record.body.critical] + ("" if facts == "}" else ",") + facts


def read_body(kind: str, detail: str, record: int) -> Body:
    """Read the body of a stored detail; one with a fault says so."""
    known = BODIES.get(kind)
    try:
        if known is None or not detail.startswith(_HEADS[False]):
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
    pairs = pa.StructArray.from_arrays([pa.array(edges[0::2]), pa.array(edges[1::2])], fields=list(_RANGE))
    kind: Any = CONTROL_SCHEMA.field("ranges").type
    found: pa.Array[Any] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=kind)
    return found


def _batch_records(batch: pa.RecordBatch) -> Iterator[Record]:
    columns: dict[str, Any] = {name: batch.column(name) for name in CONTROL_SCHEMA.names}
    at, due_at = (columns[name].cast(pa.int64()).to_pylist() for name in ("at", "due_at"))
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
    flat = lists.flatten()
    edges = np.empty(2 * len(flat), dtype=np.int64)
    edges[::2], edges[1::2] = np.from_dlpack(flat.field("first")), np.from_dlpack(flat.field("until"))
    lengths = lists.value_lengths()
    lengths = np.from_dlpack(lengths.fill_null(0) if lengths.null_count else lengths)
    ends = 2 * np.cumsum(lengths)
    return [RangeArray(edges[end - 2 * length : end]) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
