"""Fairness: which subscription is next in line for each message (R32 to R34).

Both models that share give out *slots*. Proportional: a subscription with u unacknowledged messages of at most m has the slots
u/m, (u+1)/m, …; round-robin: 0, 1, 2, …. A message goes to the lowest free slot of those whom it matches; equal slots go to
whose turn comes first. Where everybody matches the same, the messages thus take the lowest slots of all, which are found by
bisection and never message by message.

`Shares` is the memory of one reign: recent polls, and messages kept for subscriptions that have yet to poll (DESIGN 8).
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
from spark_queue.core.records import Incarnation
from spark_queue.core.state.lease import Subscription
from spark_queue.core.state.ledger import QueueLedger

#: More than any backlog can be.
UNLIMITED = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """The last poll of a subscription."""

    incarnation: Incarnation
    at_ms: int
    #: Most messages that it asked for.
    limit: int


class Shares:
    """Recent polls, and the messages that are kept for each subscription.

    Attributes
    ----------
    kept : dict of str to BitMap64
        Available messages that wait for the next poll of a subscription.
    last : str
        The subscription that was given the last message, or has it kept (round-robin); empty before the first of a reign.
    """

    def __init__(self) -> None:
        self.kept: dict[str, BitMap64] = {}
        self.last = ""
        self._polls: dict[str, Poll] = {}

    def note_poll(self, subscription: Subscription, *, limit: int, now_ms: int) -> None:
        """Note that the owner of a subscription asks for work, or still waits for it."""
        self._polls[subscription.name] = Poll(incarnation=subscription.incarnation, at_ms=now_ms, limit=limit)

    def forget(self, subscription: str) -> None:
        """Forget the poll of a subscription that ended, and keep nothing for it."""
        self._polls.pop(subscription, None)
        self.kept.pop(subscription, None)

    def polling(self, ledger: QueueLedger, now_ms: int) -> Iterator[tuple[Subscription, int]]:
        """Yield the subscriptions that have polled within the window, and how many messages each asked for."""
        for name, poll in self._polls.items():
            subscription = ledger.subscriptions.get(name)
            if subscription is None or subscription.left or subscription.incarnation != poll.incarnation:
                continue
            if now_ms < poll.at_ms + ledger.definition.fairness_window_ms:
                yield subscription, poll.limit

    def drop_lapsed(self, ledger: QueueLedger, now_ms: int) -> None:
        """Keep nothing any longer for those who have not come for it in time."""
        polling = {subscription.name for subscription, _ in self.polling(ledger, now_ms)}
        self.kept = {name: rows for name, rows in self.kept.items() if name in polling}

    def next_lapse_ms(self, ledger: QueueLedger) -> int | None:
        """Return when something that is kept for somebody is everybody's again; None when nothing is kept."""
        window_ms = ledger.definition.fairness_window_ms
        return min((self._polls[name].at_ms + window_ms for name, rows in self.kept.items() if rows), default=None)


def room_of(ledger: QueueLedger, subscription: Subscription) -> int:
    """Return how many more messages a subscription may be given, and its queue give out (R24, R31)."""
    backlogs = ledger.backlogs()
    return min(left_within(ledger, backlogs), room_within(ledger, subscription, backlogs))


def left_within(ledger: QueueLedger, backlogs: Counter[str]) -> int:
    """Return how many more messages the queue may give out (R31)."""
    return ledger.definition.max_backlog - backlogs.total() if ledger.definition.max_backlog else UNLIMITED


def room_within(ledger: QueueLedger, subscription: Subscription, backlogs: Counter[str]) -> int:
    """Return how many more messages its own backlog and its failing batches allow (R24)."""
    room = backlog_limit(ledger, subscription) - backlogs[subscription.name]
    return room if subscription.isolation_limit is None else min(room, subscription.isolation_limit)


def backlog_limit(ledger: QueueLedger, subscription: Subscription) -> int:
    """Return how many messages it may have unacknowledged (R24)."""
    return min(subscription.max_backlog, ledger.definition.max_per_subscription_backlog or UNLIMITED)


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
    #: How many more it takes.
    room: int
    #: The messages that it may be given.
    rows: BitMap64
    #: Messages assigned to it that it has not fetched yet; they count as its own while it may still be given them.
    kept: BitMap64 = field(default_factory=BitMap64)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The messages that each subscription is given."""

    #: By name, with what was kept.
    parts: dict[str, BitMap64]
    #: Position of the subscription that was given the last message.
    last: int


def assign(model: str, candidates: Sequence[Contender], *, last: int, messages: int, order: Order) -> Assignment:
    """Share messages out as if each went, in the order of grants, to whom the model names; uses the candidates up.

    Parameters
    ----------
    model : str
        "proportional" or "round-robin".
    candidates : sequence of Candidate
        Who comes first here gets the first messages of those that may stand for each other.
    last : int
        Position of the subscription that was given the last message before these (round-robin).
    messages : int
        Most messages to share out, with those that are kept.
    order : Order
        Which messages come first.
    """
    parts = _keep(candidates, messages, order)
    messages -= sum(len(part) for part in parts.values())
    groups = _groups(candidates)
    if len(groups) > 1:
        # A candidate that matches more than all can take has no room left when the search gets there.
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
    """Return each what is kept for it, as far as it still can have it, and nobody else."""
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
        """Return `count` messages to those whom they match, and tell how many to whom."""
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

    Parameters
    ----------
    slots : sequence of tuple of int
        start, unit and room of each, in the order of turns: it has the slots start × unit, (start + 1) × unit, … as far as
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
    """Return the different bitmaps of the candidates, and who has each as bits by their place among the candidates."""
    groups: list[tuple[BitMap64, int]] = []
    for number, each in enumerate(candidates):
        same = next((index for index, (rows, _) in enumerate(groups) if rows is each.rows or rows == each.rows), None)
        if same is None:
            groups.append((each.rows, 1 << number))
        else:
            groups[same] = (each.rows, groups[same][1] | 1 << number)
    return groups


def _runs(groups: Sequence[tuple[BitMap64, int]], order: Order) -> Iterator[tuple[int, int]]:
    """Yield runs of messages that follow each other in the order of grants and match the same candidates: who, and how many."""
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
