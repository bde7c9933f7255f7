"""What records said of one queue: when messages left it, came again or died, and which stood first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import DEAD_LETTER_REASONS, Kind, Record
from spark_queue.core.state.folds.replication import value_of
from spark_queue.core.state.ownership import Stage
from spark_queue.following.steps import StepSeries

#: The kinds that take messages out of a queue.
_ENDS = frozenset({Kind.REMOVED, Kind.BARRIER_RELEASED, Kind.REPLICATED})


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

    def follow(self, record: Record) -> None:
        """Take the next record about the queue."""
        rows = to_bitmap(record.ranges)
        if record.kind == Kind.REMOVED:
            self.leave(record.at_ms, rows, dies=record.reason in DEAD_LETTER_REASONS)
        elif record.kind == Kind.BARRIER_RELEASED:
            self.leave(record.at_ms, rows, dies=False)
        elif record.kind == Kind.DEAD_LETTERED:
            self.come(record.at_ms, rows)
        elif record.kind == Kind.REDRIVEN:
            letters = rows & self.dead
            if letters:
                self.come(record.at_ms, letters)
            if rows - letters:
                self.leave(record.at_ms, rows - letters, dies=False)
        elif value_of(record).stage != Stage.PRESENT:
            self.leave(record.at_ms, rows, dies=value_of(record).stage == Stage.DEAD)
