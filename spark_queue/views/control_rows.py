"""The control log as people read it: records with their time and author, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from spark_queue.core.bitmaps.ranges import count_rows
from spark_queue.core.records import DefinitionsApplied, EpochClaimed, Kind, PauseReason, Record, UnpauseReason
from spark_queue.journal.record_blocks import ControlRows
from spark_queue.views.event_texts import event_text
from spark_queue.views.message_search import Mask, one_of

#: Records of a page.
PAGE_RECORDS = 80

#: Kinds that people cause, or a program in their name; the others are of consumers and the coordinator itself.
BY_PEOPLE = (
    Kind.JOURNAL_CREATED, Kind.DEFINITIONS_APPLIED, Kind.PAUSED, Kind.UNPAUSED, Kind.REDRIVEN, Kind.UNSUBSCRIBED,
    Kind.PROXIED_TRANSFER, Kind.PEER_CHANGED, Kind.RESTORED, Kind.RETURNING,
)  # fmt: skip

#: Details that name the author of a record, in this order.
_WHO = ("principal", "user", "host", "pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """One record."""

    record: int
    at_ms: int
    kind: str
    queue: str | None
    subscription: str | None
    lease: int | None
    reason: str | None
    messages: int | None
    first: int | None
    text: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """Some records, and the number to go on from."""

    rows: Sequence[RecordRow]
    total: int
    #: Number of the record before which older ones are; None at the end.
    next_before: int | None
    kinds: Sequence[str]


def record_page(
    rows: ControlRows, *, queue: str | None, kind: str | None, by_people: bool, before: int | None, limit: int = PAGE_RECORDS
) -> RecordPage:
    """Return the newest records of some kind, of a queue, or by people, before a number."""
    kinds: set[str] = set()

    def is_meant(table: pa.Table) -> Mask:
        kinds.update(map(str, pc.unique(table.column("kind")).to_pylist()))
        mask = np.ones(table.num_rows, dtype=np.bool_)
        if queue:
            mask &= one_of(table.column("queue"), [queue])
        if kind:
            mask &= one_of(table.column("kind"), [kind])
        return mask & _of_people(table) if by_people else mask

    columns = ["kind", *(["queue"] if queue else ()), *(["lease", "detail", "reason"] if by_people else ())]
    chosen = rows.where(is_meant, *columns)
    if before is not None:
        chosen = chosen[: np.searchsorted(chosen, before)]
    shown = chosen[-limit:]
    return RecordPage(
        rows=[_row(record) for record in reversed(rows.records(shown))],
        total=len(chosen),
        next_before=int(shown[0]) if len(chosen) > len(shown) else None,
        kinds=sorted(kinds),
    )


def _of_people(rows: pa.Table) -> Any:
    """Return the mask of changes by people: also of messages that were settled or purged without a lease."""
    removed = one_of(rows.column("kind"), [Kind.REMOVED, Kind.DEFERRED, Kind.RETURNED])
    free: Any = rows.column("lease").is_null().to_numpy()
    # A timer's work carries no request.
    asked: Any = pc.match_substring(rows.column("detail"), '"request":').to_numpy()
    signed: Any = pc.match_substring(rows.column("detail"), '"by":{').to_numpy()
    # An alarm stops a subscription, and lets it go on, by itself.
    by_itself = one_of(rows.column("reason"), [PauseReason.ALARM, UnpauseReason.PROBE])
    return (one_of(rows.column("kind"), BY_PEOPLE) & ~by_itself) | (removed & free & asked) | signed


def _row(record: Record) -> RecordRow:
    ranges = record.ranges
    return RecordRow(
        record=record.record,
        at_ms=record.at_ms,
        kind=str(record.kind),
        queue=record.queue,
        subscription=record.subscription,
        lease=record.lease,
        reason=None if record.reason is None else str(record.reason),
        messages=count_rows(ranges) if len(ranges) else None,
        first=int(ranges[0][0]) if len(ranges) else None,
        text=_text(record),
        who=who(record),
    )


def _text(record: Record) -> str:
    if isinstance(record.body, DefinitionsApplied):
        resets = record.body.resets
        return "new definitions" + (f"; began anew: {', '.join(resets)}" if resets else "")
    text = event_text(record)
    return text if text != str(record.kind) else text.replace("_", " ")


def who(record: Record) -> str:
    """Return the person or the process that a record names as its maker; empty where it names none."""
    # A record of a change names its caller: a principal, or a user of a host; a claim names a coordinator.
    told: dict[str, Any] = record.body.by
    if isinstance(record.body, EpochClaimed):
        told = structs.asdict(record.body) | told
    return ", ".join(f"{name} {told[name]}" for name in _WHO if name in told)
