"""Fairness: which subscription is next in line for each message (R32 to R34).

Both models that share give out *slots*. Proportional: a subscription with u unacknowledged messages of at most m has the slots
u/m, (u+1)/m, …; round-robin: 0, 1, 2, …. A message goes to the lowest free slot of those whom it matches; equal slots go to
whose turn comes first. Where everybody matches the same, the messages thus get the lowest slots of all, which are found by
bisection and never message by message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import lcm
from typing import Protocol

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import edges
from spark_queue.core.definitions.keys import PROPORTIONAL


class Order(Protocol):
    """The order in which messages are granted."""

    def first(self, rows: BitMap64, count: int) -> BitMap64:
        """Return the `count` of `rows` that come first."""
        ...

    def levels(self, rows: BitMap64) -> Iterable[BitMap64]:
        """Return `rows` in parts, those that come first first; within each the oldest come first."""
        ...


@dataclass(slots=True, kw_only=True)
class Contender:
    """A subscription that messages may go to."""

    name: str
    #: Its place among all subscriptions of the queue.
    position: int
    #: Messages provided to it and not yet acknowledged, and how many there may be at most (R23, R24).
    unacknowledged: int
    max_backlog: int
    #: How many more it has room for.
    room: int
    #: The messages that it may be given.
    rows: BitMap64
    #: Messages assigned to it that it has not fetched yet; they count as its own while it may still be given them.
    kept: BitMap64 = field(default_factory=BitMap64)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The messages that each subscription is given."""

    #: By name, with the messages that were kept.
    parts: dict[str, BitMap64]
    #: Position of the subscription that was given the last message.
    last: int


def assign(model: str, candidates: Sequence[Contender], *, last: int, messages: int, order: Order) -> Assignment:
    """Share messages out as if each went, in the order of grants, to the candidate of the model; uses the candidates up.

    `candidates` stand in the order in which they get messages that may stand for each other; `last` is the position of the
    subscription that got the message before these (round-robin). `messages` counts those that are kept, too.
    """
    parts = _keep(candidates, messages, order)
    messages -= sum(len(part) for part in parts.values())
    groups = _groups(candidates)
    if len(groups) > 1:
        # A candidate that matches more than all have room for has no room left when the search gets there.
        most = min(messages, sum(each.room for each in candidates))
        groups = [(order.first(rows, most), who) for rows, who in groups]
    line = _Line(model, candidates, last)
    counts: dict[int, Counter[str]] = {}
    for who, count in _runs(groups, order):
        members = [each for number, each in enumerate(candidates) if who >> number & 1]
        served = line.serve(min(count, messages), members)
        counts.setdefault(who, Counter()).update(served)
        messages -= served.total()
        if not messages or not any(each.room for each in candidates):
            break
    for who, shares in counts.items():
        rows = _alike(groups, who)
        for name, count in ((each.name, shares[each.name]) for each in candidates):
            part = order.first(rows, count)
            parts[name] |= part
            rows -= part
    return Assignment(parts, line.last)


def _keep(candidates: Iterable[Contender], messages: int, order: Order) -> dict[str, BitMap64]:
    """Return the messages kept for each, as far as it still can have them, and nobody else."""
    parts: dict[str, BitMap64] = {}
    for each in candidates:
        part = parts[each.name] = order.first(each.kept & each.rows, min(each.room, messages))
        messages -= len(part)
        each.room -= len(part)
        each.unacknowledged += len(part)
    given = BitMap64.union(BitMap64(), *parts.values())
    for each in candidates if given else ():
        each.rows = each.rows - given
    return parts


class _Line:
    """The candidates, in line for the next message."""

    def __init__(self, model: str, candidates: Iterable[Contender], last: int) -> None:
        self.last = last
        self._proportional = model == PROPORTIONAL
        # One scale for all ratios, so that they compare as whole numbers.
        self._scale = lcm(*(each.max_backlog for each in candidates))

    def serve(self, count: int, members: Iterable[Contender]) -> Counter[str]:
        """Share `count` messages out among the members that they match, and return the number of each by name."""
        line = sorted((each for each in members if each.room), key=self._turn)
        slots = [self._slots(each) for each in line]
        shares = _share(count, slots)
        newest = -1
        for each, (start, unit, _), share in zip(line, slots, shares, strict=True):
            each.room -= share
            each.unacknowledged += share
            slot = (start + share - 1) * unit
            if share and slot >= newest:
                newest, self.last = slot, each.position
        return Counter({each.name: share for each, share in zip(line, shares, strict=True)})

    def _turn(self, each: Contender) -> tuple[bool, int]:
        """Return its place among equal slots: after the one served last, or the first found (R33)."""
        return (not self._proportional and each.position <= self.last, each.position)

    def _slots(self, each: Contender) -> tuple[int, int, int]:
        if self._proportional:
            return each.unacknowledged, self._scale // each.max_backlog, each.room
        return 0, 1, each.room


def _share(count: int, slots: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return how many of the `count` lowest slots belong to each.

    Each of `slots` is (start, unit, room), in the order of turns: it has the slots start × unit, (start + 1) × unit, … as far as
    its room goes.
    """
    if count == 1 and slots:
        lowest = min(range(len(slots)), key=lambda number: slots[number][0] * slots[number][1])
        return [int(number == lowest) for number in range(len(slots))]
    if count >= sum(room for _, _, room in slots):
        return [room for _, _, room in slots]
    low, high = 0, max((start + room) * unit for start, unit, room in slots)
    while high - low > 1:
        middle = (low + high) // 2
        if sum(_below(middle, slots)) <= count:
            low = middle
        else:
            high = middle
    shares = _below(low, slots)
    rest = count - sum(shares)
    for number, through in enumerate(_below(low + 1, slots)):
        # Each has one slot of this value at most, and they go to the first in line.
        if rest and through > shares[number]:
            shares[number] += 1
            rest -= 1
    return shares


def _below(value: int, slots: Iterable[tuple[int, int, int]]) -> list[int]:
    """Return how many slots below a value each has."""
    return [min(room, max(0, -(-value // unit) - start)) for start, unit, room in slots]


def _groups(candidates: Iterable[Contender]) -> list[tuple[BitMap64, int]]:
    """Return the different bitmaps of the candidates, and the holders of each as bits by their place among the candidates."""
    groups: list[tuple[BitMap64, int]] = []
    for number, each in enumerate(candidates):
        same = next((index for index, (rows, _) in enumerate(groups) if rows is each.rows or rows == each.rows), None)
        if same is None:
            groups.append((each.rows, 1 << number))
        else:
            groups[same] = (each.rows, groups[same][1] | 1 << number)
    return groups


def _runs(groups: Sequence[tuple[BitMap64, int]], order: Order) -> Iterator[tuple[int, int]]:
    """Yield runs of messages that follow each other in the order of grants and match the same candidates: these, and how many."""
    if len(groups) == 1:
        # However they are ordered, any of them may stand for any other.
        yield groups[0][1], len(groups[0][0])
        return
    for level in order.levels(BitMap64.union(*(rows for rows, _ in groups))):
        parts = [(rows & level, who) for rows, who in groups]
        cuts = BitMap64.union(*(edges(rows) for rows, _ in parts))
        for start, until in pairwise(cuts):
            everybody = sum(who for rows, who in parts if start in rows)
            if everybody:
                yield everybody, until - start


def _alike(groups: Iterable[tuple[BitMap64, int]], who: int) -> BitMap64:
    """Return the messages that match exactly the candidates of `who`."""
    groups = tuple(groups)
    matched = BitMap64.intersection(*(rows for rows, members in groups if members & who))
    return matched - BitMap64.union(BitMap64(), *(rows for rows, members in groups if not members & who))
