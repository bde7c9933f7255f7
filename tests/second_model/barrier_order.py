"""A second, simpler model of barriers: the order that they promise, by the records alone (R68 to R73)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, to_bitmap
from spark_queue.core.records import (
    DEAD_LETTER_REASONS,
    BarrierReceived,
    BarrierReleased,
    BarriersDecided,
    Decided,
    DefinitionsApplied,
    Entered,
    Granted,
    Record,
    Removed,
    Replicated,
    Resumed,
    Returned,
    Unsubscribed,
)
from spark_queue.core.state.ownership import Stage


@dataclass(slots=True)
class _Line:
    """One queue as a line of messages with barriers across it."""

    #: Barriers that an `entered` record named, until their release; those of past messages in a new queue are in no record.
    held: BitMap64 = field(default_factory=BitMap64)
    released: BitMap64 = field(default_factory=BitMap64)
    #: Messages that were granted, and have not left the queue.
    present: BitMap64 = field(default_factory=BitMap64)
    #: Dead letters, and those that came back from there: these may stand before a barrier that is long gone.
    dead: BitMap64 = field(default_factory=BitMap64)
    #: Barriers that each subscription was promised and has not received.
    promised: dict[str, BitMap64] = field(default_factory=dict)


class BarrierOrder:
    """Follows a control log and reports contradictions to the order that barriers promise."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def follow(self, record: Record) -> Iterator[str]:
        """Take the next record and give what it contradicts."""
        for queue, ranges in record.body.barriers.items() if isinstance(record.body, Entered) else ():
            self._line(queue).held |= to_bitmap(ranges)
        if isinstance(record.body, DefinitionsApplied):
            self._lines = {name: line for name, line in self._lines.items() if name not in record.body.resets}
        elif record.queue is not None:
            yield from _follow(record, self._line(record.queue), to_bitmap(record.ranges))

    def _line(self, queue: str) -> _Line:
        return self._lines.setdefault(queue, _Line())


def _follow(record: Record, line: _Line, rows: BitMap64) -> Iterator[str]:
    name = str(record.subscription)
    match record.body:
        case Decided(barrier=True) | BarriersDecided(barrier=True):
            line.held |= rows
        case BarrierReleased(subscriptions=subscriptions):
            yield from _released(subscriptions, line, rows)
        case BarrierReceived():
            yield from _not_promised(rows, line.promised.get(name, BitMap64()), f"received by '{name}'")
            line.promised[name] = line.promised.get(name, BitMap64()) - rows
        case Unsubscribed():
            line.promised.pop(name, None)
        case Granted(barrier=True) | Resumed(barrier=True):
            yield from _not_promised(rows, line.promised.get(name, BitMap64())[:1], f"granted to '{name}'")
        case Granted() | Resumed() | Returned():
            yield from _out_of_place(line, rows)
            line.present |= rows
        case Removed():
            # What nobody holds may leave from behind a barrier: by hand, or by its age.
            yield from _out_of_place(line, rows - line.dead, behind=record.lease is not None)
            line.present -= rows
            line.held -= rows
            if record.reason in DEAD_LETTER_REASONS:
                line.dead |= rows
        case Replicated(stage=stage, life=life) if stage or life:
            # What another instance ended stands before no barrier any more; what it gave another life may stand before a gone one.
            line.present -= rows
            if stage == Stage.DEAD or life:
                line.dead |= rows


def _released(subscriptions: Iterable[str], line: _Line, rows: BitMap64) -> Iterator[str]:
    before = below(line.present | (line.held - rows), rows.max())
    if before:
        yield f"barrier {rows.max()} is released while message {before.min()} stands before it"
    if rows.intersect(line.released):
        yield f"barrier {(rows & line.released).min()} is released again"
    line.held -= rows
    line.released |= rows
    for name in subscriptions:
        line.promised[name] = line.promised.get(name, BitMap64()) | rows


def _not_promised(rows: BitMap64, promised: BitMap64, what: str) -> Iterator[str]:
    if not rows.issubset(promised):
        yield f"barrier {(rows - promised).min()} is {what}, which does not wait for it now"


def _out_of_place(line: _Line, rows: BitMap64, *, behind: bool = True) -> Iterator[str]:
    """Refuse messages before a barrier that is gone, and those `behind` one that is held."""
    rows = rows - line.held
    if behind and rows and line.held and rows.max() > line.held.min():
        yield f"message {rows.max()} stands behind barrier {line.held.min()}, which is held"
    late = below(rows, line.released.max()) - line.dead if line.released else BitMap64()
    if late:
        yield f"message {late.min()} was in the queue when barrier {line.released.max()} was released"
