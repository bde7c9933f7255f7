"""History that no state keeps: why messages left and came back, how long leases lasted and messages waited.

Its cost is one look at each record, and follows ranges, not messages. Every fold of the same log gives the same. Nobody decides by
it, so it is no part of the state; a snapshot stores it beside the state.

A histogram: how often a value lay in which of some fixed ranges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import count_rows, to_bitmap, to_ranges
from spark_queue.core.definitions import parsing
from spark_queue.core.records import DefinitionsApplied, Entered, Granted, Kind, Outcomes, Record, Removal

#: Upper bounds of the buckets, in seconds.
LEASE_BOUNDS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 21_600)
DELAY_BOUNDS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400)


class Histogram:
    """Counts observations by size: `bounds` are the upper bounds of all buckets but the last, ascending.

    Attributes
    ----------
    counts : list of int
        How many observations fell into each bucket.
    total : float
        The sum of all observations.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, as often as it was met."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> Histogram:
        """Return one that goes its own way from here."""
        other = Histogram(self.bounds)
        other.counts, other.total = list(self.counts), self.total
        return other

    def add(self, other: Histogram) -> None:
        """Add the counts of another one with the same buckets."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


@dataclass(slots=True)
class _OpenLease:
    subscription: str
    granted_at_ms: int
    #: How many of its messages have neither left nor come back.
    left: int


@dataclass(slots=True)
class QueueHistory:
    """The history of one queue."""

    removed: Counter[str] = field(default_factory=Counter)
    returned: Counter[str] = field(default_factory=Counter)
    #: How long leases lasted, by subscription.
    lease_duration: dict[str, Histogram] = field(default_factory=dict)
    delivery_delay: Histogram = field(default_factory=lambda: Histogram(DELAY_BOUNDS_S))

    def copy(self) -> QueueHistory:
        """Return one that goes its own way from here."""
        durations = {name: each.copy() for name, each in self.lease_duration.items()}
        return QueueHistory(Counter(self.removed), Counter(self.returned), durations, self.delivery_delay.copy())


@dataclass(slots=True)
class _Entries:
    """When the messages of one type were published: all from a first bookmark on, until the next."""

    firsts: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)

    def add(self, first: int, at_ms: int) -> None:
        if not self.times_ms or self.times_ms[-1] != at_ms:
            self.firsts.append(first)
            self.times_ms.append(at_ms)

    def parts(self, first: int, until: int) -> Iterator[tuple[int, int]]:
        """Yield how many of some messages were published when."""
        index = max(0, bisect_right(self.firsts, first) - 1)
        while first < until and index < len(self.firsts):
            end = min(until, self.firsts[index + 1]) if index + 1 < len(self.firsts) else until
            yield end - first, self.times_ms[index]
            first, index = end, index + 1


class LogHistory:
    """The fold of a control log into histories of its queues.

    Attributes
    ----------
    queues : dict of str to QueueHistory
        By the name of the queue; of queues that are gone, too.
    """

    def __init__(self) -> None:
        self.next_record = 0
        self.queues: dict[str, QueueHistory] = {}
        self._entries: dict[str, _Entries] = {}
        #: The message type of each queue whose messages enter from its log.
        self._types: dict[str, str] = {}
        self._leases: dict[tuple[str, int], _OpenLease] = {}
        #: Rows that were leased before, by queue.
        self._leased: dict[str, BitMap64] = {}

    def fold(self, records: Iterable[Record]) -> None:
        """Fold records that follow; those that are known already change nothing."""
        for record in records:
            if record.record >= self.next_record:
                self._fold(record)
                self.next_record = record.record + 1

    def _fold(self, record: Record) -> None:
        match record.kind:
            case Kind.DEFINITIONS_APPLIED:
                self._apply(record)
            case Kind.ENTERED:
                entries = self._entries.setdefault(str(record.message_type), _Entries())
                for first, _ in record.ranges:
                    entries.add(first, record.body_as(Entered).published)
            case Kind.GRANTED:
                self._grant(record)
            case Kind.RESUMED if (lease := self._leases.get(_key(record))) is not None:
                lease.left = count_rows(record.ranges)
            case Kind.OUTCOMES if record.body_as(Outcomes).final:
                # At most once: a receiver is done with messages that left when they were granted.
                self._take(record)
            case Kind.PROVEN | Kind.LAPSED:
                self._end(record)
            case Kind.REMOVED:
                self._count(self._queue(record).removed, record)
                if record.reason != Removal.DELIVERED:
                    self._take(record)
            case Kind.RETURNED:
                self._count(self._queue(record).returned, record)
                self._take(record)
            case _:
                pass

    def _apply(self, record: Record) -> None:
        body = record.body_as(DefinitionsApplied)
        definitions = parsing.parse(body.definitions)
        self._types = {name: queue.message_type for name, queue in definitions.queues.items() if queue.underlying_topic}
        begun = {*body.resets, *(name for name in self._leased if name not in definitions.queues)}
        for name in begun:
            self._leased.pop(name, None)
        self._leases = {key: lease for key, lease in self._leases.items() if key[0] not in begun}

    def _grant(self, record: Record) -> None:
        queue = str(record.queue)
        self._leases[_key(record)] = _OpenLease(str(record.subscription), record.at_ms, count_rows(record.ranges))
        entries = self._entries.get(self._types.get(queue, ""))
        # A barrier is held on purpose, and a dead-letter queue's messages entered elsewhere.
        if entries is None or record.body_as(Granted).barrier:
            return
        leased, rows = self._leased.setdefault(queue, BitMap64()), to_bitmap(record.ranges)
        delays = self._queue(record).delivery_delay
        # Most leases are first ones.
        fresh = to_ranges(rows - leased) if leased.intersect(rows) else record.ranges
        for first, until in fresh:
            for row_count, published_at_ms in entries.parts(first, until):
                delays.observe(max(0, record.at_ms - published_at_ms) / 1_000, row_count)
        leased.update(rows)

    def _take(self, record: Record) -> None:
        """Note that messages of a lease left it."""
        lease = self._leases.get(_key(record))
        if lease is not None:
            lease.left -= count_rows(record.ranges)
            if lease.left <= 0:
                self._end(record)

    def _end(self, record: Record) -> None:
        lease = self._leases.pop(_key(record), None)
        if lease is not None:
            durations = self._queue(record).lease_duration
            if lease.subscription not in durations:
                durations[lease.subscription] = Histogram(LEASE_BOUNDS_S)
            durations[lease.subscription].observe(max(0, record.at_ms - lease.granted_at_ms) / 1_000)

    def _queue(self, record: Record) -> QueueHistory:
        known = self.queues.get(str(record.queue))
        if known is None:
            known = self.queues[str(record.queue)] = QueueHistory()
        return known

    @staticmethod
    def _count(counts: Counter[str], record: Record) -> None:
        counts[str(record.reason)] += count_rows(record.ranges)


def _key(record: Record) -> tuple[str, int]:
    return str(record.queue), int(record.lease or 0)
