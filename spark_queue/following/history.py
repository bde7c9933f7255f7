"""The data of charts: when messages came to each queue and left it, by the control log from its first record on.

Nothing is sampled. Of a queue the times are kept at which messages left, came back or died, and its first message over time; their
segments have the times of publishes. A chart of any span asks for as many moments as it has points. Of replicated queues the owners
of messages are kept, too: those owned here, those owned elsewhere, and the number that moved (R119).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core import folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.records import DEAD_LETTER_REASONS, DefinitionsApplied, Kind, Record, Valued
from spark_queue.core.state.age import oldest_ms
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import OWNED_HERE, State
from spark_queue.core.state.ownership import Stage, value_of
from spark_queue.journal.record_blocks import ControlRows
from spark_queue.views.journal_view import together
from spark_queue.views.message_search import Mask, one_of

Times = NDArray[np.int64]


class StepSeries:
    """A number that changes at moments, and its value at any of them."""

    def __init__(self) -> None:
        self._times_ms: list[int] = []
        self._values: list[int] = []
        self._arrays: tuple[Times, Times] | None = None

    def add(self, at_ms: int, change: int) -> None:
        """Let it change by so much."""
        self.put(at_ms, (self._values[-1] if self._values else 0) + change)

    def put(self, at_ms: int, value: int) -> None:
        """Let it be a value from a moment on; moments ascend."""
        if self._times_ms and self._times_ms[-1] == at_ms:
            self._values[-1] = value
        elif not self._values or self._values[-1] != value:
            self._times_ms.append(at_ms)
            self._values.append(value)
        else:
            return
        self._arrays = None

    @property
    def newest(self) -> tuple[int, int]:
        """The number of changes, and the value now: another pair after each change."""
        return len(self._times_ms), self._values[-1] if self._values else 0

    def at(self, times_ms: Times, *, before: int = 0) -> Times:
        """Return the values at some moments; `before` holds before the first change."""
        if self._arrays is None:
            self._arrays = np.array(self._times_ms, np.int64), np.array([before, *self._values], np.int64)
        known_ms, values = self._arrays
        found: Times = values[np.searchsorted(known_ms, times_ms, side="right")]
        return found


@dataclass(slots=True)
class OwnerTrace:
    """The owners of one queue's messages over time."""

    owned: StepSeries = field(default_factory=StepSeries)
    remote: StepSeries = field(default_factory=StepSeries)
    transferred_in: StepSeries = field(default_factory=StepSeries)
    transferred_out: StepSeries = field(default_factory=StepSeries)
    #: When the oldest that is owned here was published; -1 when none is.
    oldest_ms: StepSeries = field(default_factory=StepSeries)

    def note(self, state: JournalState, ledger: QueueLedger, at_ms: int) -> None:
        """Note the owners from a moment on."""
        oldest = oldest_ms(state, ledger, (ledger.rows[each] for each in OWNED_HERE))
        self.owned.put(at_ms, ledger.depth)
        self.remote.put(at_ms, len(ledger.rows[State.REMOTE]))
        self.transferred_in.put(at_ms, ledger.ownership.came_from.total())
        self.transferred_out.put(at_ms, ledger.ownership.given_to.total())
        self.oldest_ms.put(at_ms, -1 if oldest is None else oldest)


class OwnerHistory:
    """The owners of messages in all queues of an instance.

    Attributes
    ----------
    traces : dict of str to OwnerTrace
        By the name of the queue.
    """

    def __init__(self) -> None:
        self.traces: dict[str, OwnerTrace] = {}

    def fold(self, state: JournalState, records: Sequence[Record]) -> None:
        """Fold records into a state, and note the owners after each of them."""
        state.foresee(records)
        for record in records:
            folds.fold(state, record)
            for name in [str(record.queue)] if record.queue is not None else list(state.queues):
                if name in state.queues:
                    self.traces.setdefault(name, OwnerTrace()).note(state, state.queues[name], record.at_ms)
        state.foresee(())


def owners_of(state: JournalState, traits: TraitSource, records: Callable[[], Sequence[Record]]) -> OwnerHistory | None:
    """Return the owners of an instance's messages over time, by a fold of its whole log; None for any other journal."""
    if state.definitions.journal.instance is None:
        return None
    owners = OwnerHistory()
    owners.fold(JournalState(traits), records())
    return owners


#: The kinds that take messages out of a queue.
_ENDS = frozenset({Kind.REMOVED, Kind.BARRIER_RELEASED, Kind.REPLICATED})


@dataclass(slots=True, kw_only=True)
class QueueTrace:
    """The course of one queue, by its records."""

    #: When it began, or began anew.
    since_ms: int
    #: Messages that left it, and did not come back; those of them that are dead letters.
    gone: BitMap64 = field(default_factory=BitMap64)
    dead: BitMap64 = field(default_factory=BitMap64)
    #: Everything that ever left it: retired messages are known by nothing else.
    left: BitMap64 = field(default_factory=BitMap64)
    #: The numbers of messages that left, and that came (again) by a record, in all; and of its dead letters.
    outgoing: StepSeries = field(default_factory=StepSeries)
    incoming: StepSeries = field(default_factory=StepSeries)
    letters: StepSeries = field(default_factory=StepSeries)
    #: Messages that came by a record are as old as that; oldest first.
    begun: deque[tuple[int, BitMap64]] = field(default_factory=deque)
    later: BitMap64 = field(default_factory=BitMap64)
    #: The time of the oldest that came by a record, and the first message of the others: the bookmark before which all are gone.
    oldest_later_ms: StepSeries = field(default_factory=StepSeries)
    first_row: StepSeries = field(default_factory=StepSeries)
    #: Messages that were ever in it, and those that have not left and came by no record; known while records are followed.
    members: BitMap64 = field(default_factory=BitMap64)
    rest: BitMap64 = field(default_factory=BitMap64)

    def leave(self, at_ms: int, rows: BitMap64, *, dies: bool) -> None:
        """Let messages leave; those that are dead letters already leave only these."""
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
        """Note the oldest message."""
        self.later -= gone
        while self.begun and not self.begun[0][1].intersect(self.later):
            self.begun.popleft()
        self.oldest_later_ms.put(at_ms, self.begun[0][0] if self.begun else -1)
        self.rest -= gone
        if self.members:
            self.first_row.put(at_ms, self.rest.min() if self.rest else self.members.max() + 1)

    def prepare(self, members: BitMap64) -> None:
        """Set the messages that the next records may be about."""
        self.members = members
        self.rest = self.members - self.gone - self.later

    def follow(self, record: Record) -> None:
        """Note the next record about the queue."""
        rows = to_bitmap(record.ranges)
        if record.kind == Kind.REMOVED:
            self.leave(record.at_ms, rows, dies=record.reason in DEAD_LETTER_REASONS)
        elif record.kind == Kind.BARRIER_RELEASED:
            self.leave(record.at_ms, rows, dies=False)
        elif record.kind == Kind.DEAD_LETTERED:
            # Letters that it still has after its source was reset stay as they are.
            self.come(record.at_ms, rows - self.later - self.dead)
        elif record.kind == Kind.REDRIVEN:
            letters = rows & self.dead
            if letters:
                self.come(record.at_ms, letters)
            if rows - letters:
                self.leave(record.at_ms, rows - letters, dies=False)
        elif value_of(record.body_as(Valued)).stage != Stage.PRESENT:
            self.leave(record.at_ms, rows, dies=value_of(record.body_as(Valued)).stage == Stage.DEAD)


#: A time that never comes.
_NEVER_MS = np.iinfo(np.int64).max

#: The kinds of records that charts are made of.
KINDS = (Kind.DEFINITIONS_APPLIED, Kind.REMOVED, Kind.REDRIVEN, Kind.DEAD_LETTERED, Kind.BARRIER_RELEASED, Kind.REPLICATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A queue over a span of time."""

    #: The moments, in milliseconds: one more than there are rates.
    times_ms: Times
    depth: Times
    dead_letters: Times
    #: Age of the oldest message, in seconds; NaN where there was none.
    oldest_age_s: NDArray[np.float64]
    #: Messages each second between two moments.
    rate_in: NDArray[np.float64]
    rate_out: NDArray[np.float64]
    #: Of a replicated queue, whose depth is what this instance owns: what others own, and what came and went by transfers, in all.
    remote: Times | None = None
    transferred_in: Times | None = None
    transferred_out: Times | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """The little chart of a queue, and the numbers that it was drawn of."""

    drawn_of: tuple[int, ...]
    line: str
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """The numbers of messages that came to a queue and left it until some moments, and the segments behind them."""

    #: The segments of its type: when they were published, and up to which bookmark.
    published_ms: Times
    untils: Times
    #: Messages that were ever in it by a segment, and the bookmark up to which segments were published.
    members: BitMap64
    until: Times
    came: Times
    left: Times


class JournalHistory:
    """The traces of all queues of a journal.

    Attributes
    ----------
    owners : OwnerHistory or None
        The owners of messages, of an instance.
    sparks : dict of str to Spark
        Little charts that were drawn before, by queue.
    """

    def __init__(self, owners: OwnerHistory | None = None) -> None:
        self.owners = owners
        self.sparks: dict[str, Spark] = {}
        self._traces: dict[str, QueueTrace] = {}
        #: Segments of message types as arrays: how many there were, when they were published, and up to which bookmark.
        self._published: dict[str, tuple[int, Times, Times]] = {}

    def follow(self, records: Iterable[Record], state: JournalState) -> None:
        """Follow the next records of `KINDS`, which lead to `state`."""
        waiting: dict[str, list[Record]] = {}
        for record in records:
            if record.kind == Kind.DEFINITIONS_APPLIED:
                for name in self._begin(record):
                    waiting.pop(name, None)
            elif record.queue in self._traces:
                waiting.setdefault(str(record.queue), []).append(record)
        for name, found in waiting.items():
            self._traces[name].left |= BitMap64.union(BitMap64(), *(to_bitmap(each.ranges) for each in found if each.kind in _ENDS))
            self._follow(name, found, state)

    def read(self, rows: ControlRows, state: JournalState) -> None:
        """Follow a whole log that led to `state`, file by file: its records may be too many to have them all at once."""
        begun: dict[str, int] = {}
        for record in rows.applied():
            begun |= dict.fromkeys(self._begin(record), record.record)

        def is_told(table: pa.Table) -> Mask:
            queues = table.column("queue").combine_chunks().dictionary_encode()
            since = np.array([begun.get(str(name), rows.count) for name in [*queues.dictionary.to_pylist(), None]])
            codes = queues.indices.fill_null(len(since) - 1).to_numpy()
            mask: Mask = table.column("record").to_numpy() > since[codes]
            return one_of(table.column("kind"), KINDS) & mask

        numbers = rows.where(is_told, "kind", "queue", "record")
        for table in rows.tables(numbers, "kind", "queue", "ranges"):
            for record in together(table.filter(pa.array(one_of(table.column("kind"), _ENDS)))):
                self._traces[str(record.queue)].left |= to_bitmap(record.ranges)
        for records in rows.parts(numbers):
            of_queue: dict[str, list[Record]] = {}
            for record in records:
                of_queue.setdefault(str(record.queue), []).append(record)
            for name, found in of_queue.items():
                self._follow(name, found, state)

    def _follow(self, name: str, records: Iterable[Record], state: JournalState) -> None:
        """Follow records of a queue; its trace has the messages that left by them already."""
        trace, ledger = self._traces[name], state.queues.get(name)
        # Into a queue for dead letters alone everything comes by a record.
        has_topic = ledger is not None and ledger.definition.underlying_topic is not None
        trace.prepare(ledger.entered | trace.left if ledger is not None and has_topic else BitMap64())
        for record in records:
            trace.follow(record)

    def fold(self, records: Sequence[Record], state: JournalState) -> None:
        """Fold the next records into a state, and follow them."""
        if self.owners is None:
            folds.fold_all(state, records)
        else:
            self.owners.fold(state, records)
        self.follow((each for each in records if each.kind in KINDS), state)

    def since_ms(self, queue: str) -> int:
        """Return the time at which a queue began."""
        return self._traces[queue].since_ms

    def series(self, state: JournalState, queue: str, times_ms: Times) -> Series:
        """Return a queue at some moments."""
        trace, owners, flow = self._traces[queue], self._owners(state, queue), self._flow(state, queue, times_ms)
        depth = self._depth(trace, owners, flow, times_ms)
        seconds = np.maximum(np.diff(times_ms), 1) / 1_000
        # Messages that wait in a dead-letter queue are dead letters, too.
        waiting = depth if state.definitions.source_of(queue) is not None else 0
        return Series(
            times_ms=times_ms,
            depth=depth,
            dead_letters=trace.letters.at(times_ms) + waiting,
            oldest_age_s=self._ages(trace, owners, flow, times_ms),
            rate_in=np.diff(flow.came) / seconds,
            rate_out=np.diff(flow.left) / seconds,
            remote=None if owners is None else owners.remote.at(times_ms),
            transferred_in=None if owners is None else owners.transferred_in.at(times_ms),
            transferred_out=None if owners is None else owners.transferred_out.at(times_ms),
        )

    def depth(self, state: JournalState, queue: str, times_ms: Times) -> Times:
        """Return the depths of a queue at some moments; of a replicated one, the messages that this instance owned."""
        return self._depth(self._traces[queue], self._owners(state, queue), self._flow(state, queue, times_ms), times_ms)

    def rates(self, state: JournalState, queue: str, start_ms: int, end_ms: int) -> tuple[float, float]:
        """Return the rates of messages that came and left over a span, each second."""
        flow, seconds = self._flow(state, queue, np.array([start_ms, end_ms])), max(1, end_ms - start_ms) / 1_000
        return float(flow.came[1] - flow.came[0]) / seconds, float(flow.left[1] - flow.left[0]) / seconds

    def changes(self, state: JournalState, queue: str) -> tuple[int, ...]:
        """Return numbers of which one changes with each change of a queue's past."""
        trace, owners = self._traces[queue], self._owners(state, queue)
        steps = [trace.outgoing, trace.incoming, *([] if owners is None else [owners.owned])]
        return trace.since_ms, len(state.queues[queue].entered), *(number for each in steps for number in each.newest)

    def _owners(self, state: JournalState, queue: str) -> OwnerTrace | None:
        """Return the owners of a replicated queue's messages over time; None for another queue."""
        if self.owners is None or not state.ledger(queue).is_replicated:
            return None
        return self.owners.traces.get(queue)

    @staticmethod
    def _depth(trace: QueueTrace, owners: OwnerTrace | None, flow: _Flow, times_ms: Times) -> Times:
        if owners is not None:
            return owners.owned.at(times_ms)
        found: Times = np.where(times_ms >= trace.since_ms, np.maximum(flow.came - flow.left, 0), 0)
        return found

    def _flow(self, state: JournalState, queue: str, times_ms: Times) -> _Flow:
        trace, ledger = self._traces[queue], state.ledger(queue)
        published_ms, untils = self._segments(state, ledger.definition.message_type)
        members = ledger.entered | trace.left if ledger.definition.underlying_topic else BitMap64()
        until = np.concatenate([[0], untils])[np.searchsorted(published_ms, times_ms, side="right")]
        ranks = {each: members.range_cardinality(0, each) for each in set(until.tolist())}
        entered = np.array([ranks[each] for each in until.tolist()], np.int64)
        return _Flow(
            published_ms=published_ms, untils=untils, members=members, until=until,
            came=entered + trace.incoming.at(times_ms), left=trace.outgoing.at(times_ms),
        )  # fmt: skip

    @staticmethod
    def _ages(trace: QueueTrace, owners: OwnerTrace | None, flow: _Flow, times_ms: Times) -> NDArray[np.float64]:
        if owners is not None:
            return _ages(times_ms, owners.oldest_ms.at(times_ms, before=-1))
        members, first = flow.members, trace.first_row.at(times_ms, before=0)
        # Where a queue takes only some messages, its first one may stand further on.
        nexts = {row: members.next_set_bit(row) if members and row <= members.max() else -1 for row in set(first.tolist())}
        rows = np.array([-1 if nexts[row] is None else nexts[row] for row in first.tolist()], np.int64)
        is_there = (rows >= 0) & (rows < flow.until)
        index = np.minimum(np.searchsorted(flow.untils, rows, side="right"), max(0, len(flow.untils) - 1))
        own_ms = np.where(is_there, flow.published_ms[index] if len(flow.published_ms) else 0, _NEVER_MS)
        later_ms = trace.oldest_later_ms.at(times_ms, before=-1)
        oldest_ms = np.minimum(own_ms, np.where(later_ms < 0, _NEVER_MS, later_ms))
        return _ages(times_ms, np.where(oldest_ms == _NEVER_MS, -1, oldest_ms))

    def _segments(self, state: JournalState, message_type: str) -> tuple[Times, Times]:
        segments = state.message_types[message_type].segments
        known = self._published.get(message_type)
        if known is None or known[0] != len(segments):
            times_ms = np.fromiter((each.published_at_ms for each in segments), np.int64, len(segments))
            untils = np.fromiter((each.until for each in segments), np.int64, len(segments))
            known = self._published[message_type] = len(segments), times_ms, untils
        return known[1], known[2]

    def _begin(self, record: Record) -> list[str]:
        """Begin the traces of queues that definitions add or reset, and return which these are."""
        body = record.body_as(DefinitionsApplied)
        queues = body.definitions.get("queues", {})
        begun = [name for name in queues if name not in self._traces or name in body.resets]
        self._traces |= {name: QueueTrace(since_ms=record.at_ms) for name in begun}
        return begun


def _ages(times_ms: Times, oldest_ms: Times) -> NDArray[np.float64]:
    """Return the age of the oldest in seconds, NaN where there is none, which is -1."""
    return np.where(oldest_ms < 0, np.nan, np.maximum(times_ms - oldest_ms, 0) / 1_000)
