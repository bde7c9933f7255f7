"""Shares of a queue's subscriptions: their backlog limits, and the room that is left (R22 to R35)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.core.records import Incarnation
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.subscription import Subscription

#: More than any backlog can be.
UNLIMITED = 2**63

_NONE = BitMap64()


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """The last poll of a subscription."""

    incarnation: Incarnation
    at_ms: int
    #: Most messages that it asked for.
    limit: int
    #: Messages that it is not to be granted, since it works on them still (R136).
    overrun: BitMap64


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

    def note_poll(self, subscription: Subscription, *, limit: int, now_ms: int, overrun: BitMap64 = _NONE) -> None:
        """Note that the owner of a subscription asks for work, or still waits for it."""
        self._polls[subscription.name] = Poll(incarnation=subscription.incarnation, at_ms=now_ms, limit=limit, overrun=overrun)

    def overrun(self, subscription: Subscription) -> BitMap64:
        """Return the messages that the present start of a subscription works on still, by its last poll (R136)."""
        poll = self._polls.get(subscription.name)
        return poll.overrun if poll is not None and poll.incarnation == subscription.incarnation else _NONE

    def forget(self, subscription: str) -> None:
        """Forget the poll of a subscription that ended, and keep nothing for it."""
        self._polls.pop(subscription, None)
        self.kept.pop(subscription, None)

    def polling(self, ledger: QueueLedger, now_ms: int) -> Iterator[tuple[Subscription, int]]:
        """Yield the subscriptions that have polled within the window, and how many messages each asked for."""
        for name in self._polls:
            if (found := self._polling(name, ledger, now_ms)) is not None:
                yield found

    def _polling(self, name: str, ledger: QueueLedger, now_ms: int) -> tuple[Subscription, int] | None:
        subscription, poll = ledger.subscriptions.get(name), self._polls[name]
        if subscription is None or subscription.left or subscription.incarnation != poll.incarnation:
            return None
        return (subscription, poll.limit) if now_ms < poll.at_ms + ledger.definition.fairness_window_ms else None

    def keeps_all(self, ledger: QueueLedger, backlogs: Counter[str], now_ms: int) -> bool:
        """Return whether each message that could be granted is kept for a subscription that polls and has room for it."""
        kept = BitMap64()
        for name, part in self.kept.items():
            if part and (found := self._polling(name, ledger, now_ms)) is not None:
                subscription, limit = found
                if len(part) <= min(limit, room_within(ledger, subscription, backlogs)):
                    kept |= part
        return bool(kept) and ledger.rows[State.AVAILABLE].issubset(kept) and ledger.due(now_ms).issubset(kept)

    def drop_lapsed(self, ledger: QueueLedger, now_ms: int) -> None:
        """Keep nothing any longer for subscriptions that have not come for it in time."""
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
