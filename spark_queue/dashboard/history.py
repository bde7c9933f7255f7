"""What charts are made of: when messages came to each queue and left it, as the control log tells, from its first record on.

Nothing is sampled. Of a queue it is kept when how many messages left, came back or died, and which message stood first from when
on. When messages entered, their segments tell. A chart of any span asks for as many moments as it has points.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import DEAD_LETTER_REASONS, Kind, Record
from spark_queue.core.state.folds.replication import value_of
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ownership import Stage

#: The kinds that take messages out of a queue.
_ENDS = frozenset({Kind.REMOVED, Kind.BARRIER_RELEASED, Kind.REPLICATED})

Numbers = NDArray[np.int64]

#: The kinds of records that charts are made of.
KINDS = (Kind.DEFINITIONS_APPLIED, Kind.REMOVED, Kind.REDRIVEN, Kind.DEAD_LETTERED, Kind.BARRIER_RELEASED, Kind.REPLICATED)


class StepSeries:
    """A number that changes at moments, and what it was at any of them."""

    def __init__(self) -> None:
        self._times_ms: list[int] = []
        self._values: list[int] = []
        self._arrays: tuple[Numbers, Numbers] | None = None

    def add(self, at_ms: int, change: int) -> None:
        """Let it change by so much."""
        self.put(at_ms, (self._values[-1] if self._values else 0) + change)

    def put(self, at_ms: int, value: int) -> None:
        """Let it be a value from a moment on; moments ascend."""
        if self._times_ms and self._times_ms[-1] == at_ms:
            self._values[-1] = value
        else:
            self._times_ms.append(at_ms)
            self._values.append(value)
        self._arrays = None

    def at(self, times_ms: Numbers, *, before: int = 0) -> Numbers:
        """Return what it was at some moments; `before` holds before its first change."""
        if self._arrays is None:
            self._arrays = np.array(self._times_ms, np.int64), np.array([before, *self._values], np.int64)
        known_ms, values = self._arrays
        found: Numbers = values[np.searchsorted(known_ms, times_ms, side="right")]
        return found


@dataclass(slots=True, kw_only=True)
class QueueTrace:
    """What records said of one queue."""

    #: When it began, or began anew.
    since_ms: int
    #: What left it, and did not come back; of these, what is a dead letter.
    gone: BitMap64 = field(default_factory=BitMap64)
    dead: BitMap64 = field(default_factory=BitMap64)
    #: Everything that ever left it: retired messages are known by nothing else.
    left: BitMap64 = field(default_factory=BitMap64)
    #: How many left and came (again) by a record, in all; and how many dead letters it has.
    outgoing: StepSeries = field(default_factory=StepSeries)
    incoming: StepSeries = field(default_factory=StepSeries)
    letters: StepSeries = field(default_factory=StepSeries)
    #: What came by a record is as old as that; oldest first.
    begun: deque[tuple[int, BitMap64]] = field(default_factory=deque)
    later: BitMap64 = field(default_factory=BitMap64)
    #: The time of the oldest that came by a record, and the first message of the others: the bookmark before which all are gone.
    oldest_later_ms: StepSeries = field(default_factory=StepSeries)
    first_row: StepSeries = field(default_factory=StepSeries)
    #: Whatever was ever in it, and what of that has not left and did not come by a record; known while records are followed.
    members: BitMap64 = field(default_factory=BitMap64)
    rest: BitMap64 = field(default_factory=BitMap64)

    def leave(self, at_ms: int, rows: BitMap64, *, dies: bool) -> None:
        """Let messages leave; what was a dead letter already leaves only these."""
        leaving, ending = rows - self.gone, (rows & self.dead) if not dies else BitMap64()
        self.gone |= rows
        if leaving:
            self.outgoing.add(at_ms, len(leaving))
        if dies:
            self.dead |= leaving
        self.dead -= ending
        if dies or ending:
            self.letters.add(at_ms, (len(leaving) if dies else 0) - len(ending))
        self._follow(at_ms, rows)

    def come(self, at_ms: int, rows: BitMap64) -> None:
        """Let messages come by a record: redriven ones, or dead letters in their queue."""
        ending = rows & self.dead
        self.dead -= ending
        self.gone -= rows
        if ending:
            self.letters.add(at_ms, -len(ending))
        self.incoming.add(at_ms, len(rows))
        self.begun.append((at_ms, rows))
        self.later |= rows
        self._follow(at_ms, BitMap64())

    def _follow(self, at_ms: int, gone: BitMap64) -> None:
        """Note which message is the oldest now."""
        self.later -= gone
        while self.begun and not self.begun[0][1].intersect(self.later):
            self.begun.popleft()
        self.oldest_later_ms.put(at_ms, self.begun[0][0] if self.begun else -1)
        self.rest -= gone
        if self.members:
            self.first_row.put(at_ms, self.rest.min() if self.rest else self.members.max() + 1)

    def prepare(self, entered: BitMap64, records: Iterable[Record]) -> None:
        """Know which messages the next records may be about; `entered` are those that the queue has, or had, by the state."""
        self.left |= BitMap64.union(BitMap64(), *(to_bitmap(each.ranges) for each in records if each.kind in _ENDS))
        self.members = entered | self.left
        self.rest = self.members - self.gone - self.later


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A queue over a span of time."""

    #: The moments, in milliseconds: one more than there are rates.
    times_ms: Numbers
    depth: Numbers
    dead_letters: Numbers
    #: Age of the oldest message, in seconds; NaN where there was none.
    oldest_age_s: NDArray[np.float64]
    #: Messages each second between two moments.
    rate_in: NDArray[np.float64]
    rate_out: NDArray[np.float64]


class JournalHistory:
    """The traces of all queues of a journal."""

    def __init__(self) -> None:
        self._traces: dict[str, QueueTrace] = {}
        #: Segments of message types as arrays: how many there were, when they entered, and up to which bookmark.
        self._entered: dict[str, tuple[int, Numbers, Numbers]] = {}

    def follow(self, records: Iterable[Record], state: JournalState) -> None:
        """Take the next records of `KINDS`; `state` is what they lead to."""
        waiting: dict[str, list[Record]] = {}
        for record in records:
            if record.kind == Kind.DEFINITIONS_APPLIED:
                for name in self._begin(record):
                    waiting.pop(name, None)
            elif record.queue in self._traces:
                waiting.setdefault(str(record.queue), []).append(record)
        for name, found in waiting.items():
            trace, ledger = self._traces[name], state.queues.get(name)
            has_topic = ledger is not None and ledger.definition.underlying_topic is not None
            trace.prepare(ledger.entered if ledger is not None and has_topic else BitMap64(), found if has_topic else ())
            for record in found:
                _follow(trace, record)

    def since_ms(self, queue: str) -> int:
        """Return when a queue began."""
        return self._traces[queue].since_ms

    def series(self, state: JournalState, queue: str, times_ms: Numbers) -> Series:
        """Return a queue at some moments."""
        trace, ledger = self._traces[queue], state.ledger(queue)
        entered_ms, untils = self._segments(state, ledger.definition.message_type)
        members = ledger.entered | trace.left if ledger.definition.underlying_topic else BitMap64()
        until = np.concatenate([[0], untils])[np.searchsorted(entered_ms, times_ms, side="right")]
        ranks = {int(each): members.range_cardinality(0, int(each)) for each in np.unique(until)}
        entered = np.array([ranks[int(each)] for each in until], np.int64)
        came, left = trace.incoming.at(times_ms), trace.outgoing.at(times_ms)
        began = times_ms >= trace.since_ms
        seconds = np.maximum(np.diff(times_ms), 1) / 1_000
        depth = np.where(began, np.maximum(entered + came - left, 0), 0)
        # What waits in a dead-letter queue are dead letters, too.
        waiting = depth if state.definitions.source_of(queue) is not None else 0
        return Series(
            times_ms=times_ms,
            depth=depth,
            dead_letters=trace.letters.at(times_ms) + waiting,
            oldest_age_s=self._ages(trace, members, (entered_ms, untils), until, times_ms),
            rate_in=np.diff(entered + came) / seconds,
            rate_out=np.diff(left) / seconds,
        )

    def _ages(
        self, trace: QueueTrace, members: BitMap64, segments: tuple[Numbers, Numbers], until: Numbers, times_ms: Numbers
    ) -> NDArray[np.float64]:
        entered_ms, untils = segments
        first = trace.first_row.at(times_ms, before=0)
        # Where a queue takes only some messages, its first one may stand further on.
        nexts = {int(row): members.next_set_bit(int(row)) if members and row <= members.max() else -1 for row in np.unique(first)}
        rows = np.array([-1 if nexts[int(row)] is None else nexts[int(row)] for row in first], np.int64)
        is_there = (rows >= 0) & (rows < until)
        index = np.minimum(np.searchsorted(untils, rows, side="right"), max(0, len(untils) - 1))
        own_ms = np.where(is_there, entered_ms[index] if len(entered_ms) else 0, np.iinfo(np.int64).max)
        later_ms = trace.oldest_later_ms.at(times_ms, before=-1)
        oldest_ms = np.minimum(own_ms, np.where(later_ms < 0, np.iinfo(np.int64).max, later_ms))
        known = oldest_ms < np.iinfo(np.int64).max
        return np.where(known, np.maximum(times_ms - np.where(known, oldest_ms, 0), 0) / 1_000, np.nan)

    def _segments(self, state: JournalState, message_type: str) -> tuple[Numbers, Numbers]:
        segments = state.message_types[message_type].segments
        known = self._entered.get(message_type)
        if known is None or known[0] != len(segments):
            times_ms = np.fromiter((each.entered_at_ms for each in segments), np.int64, len(segments))
            untils = np.fromiter((each.until for each in segments), np.int64, len(segments))
            known = self._entered[message_type] = len(segments), times_ms, untils
        return known[1], known[2]

    def _begin(self, record: Record) -> list[str]:
        """Begin the traces of queues that definitions add or reset, and return which these are."""
        queues = record.detail["definitions"].get("queues", {})
        for name in [name for name in self._traces if name not in queues]:
            del self._traces[name]
        begun = [name for name in queues if name not in self._traces or name in record.detail["resets"]]
        self._traces |= {name: QueueTrace(since_ms=record.at_ms) for name in begun}
        return begun


def _follow(trace: QueueTrace, record: Record) -> None:
    rows = to_bitmap(record.ranges)
    if record.kind == Kind.REMOVED:
        trace.leave(record.at_ms, rows, dies=record.reason in DEAD_LETTER_REASONS)
    elif record.kind == Kind.BARRIER_RELEASED:
        trace.leave(record.at_ms, rows, dies=False)
    elif record.kind == Kind.DEAD_LETTERED:
        trace.come(record.at_ms, rows)
    elif record.kind == Kind.REDRIVEN:
        letters = rows & trace.dead
        if letters:
            trace.come(record.at_ms, letters)
        if rows - letters:
            trace.leave(record.at_ms, rows - letters, dies=False)
    elif value_of(record).stage != Stage.PRESENT:
        trace.leave(record.at_ms, rows, dies=value_of(record).stage == Stage.DEAD)
