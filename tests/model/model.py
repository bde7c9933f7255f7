"""A queue, message by message: what the rules say, in plain sets and loops, slow and obvious on purpose."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from tests.model import order
from tests.model.definitions import Rules
from tests.model.parts import Lease, Message, Subscription

if TYPE_CHECKING:
    from tests.model.journal import Journal

IN_QUEUE = ("available", "leased", "delayed")
WAITING = ("available", "delayed", "inactive")
DEAD_REASONS = ("max_deliveries", "max_cancels", "forced_expire")


class Queue:
    """One queue of one journal."""

    def __init__(self, journal: Journal, rules: Rules) -> None:
        self.journal = journal
        self.rules = rules
        self.messages: dict[int, Message] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.granted = 0
        self.paused = False

    @property
    def now(self) -> int:
        """The coordinator's time."""
        return self.journal.now

    @property
    def letters(self) -> Queue | None:
        """Its dead-letter queue."""
        return self.journal.queues.get(self.rules.letters or "")

    def having(self, *states: str) -> list[Message]:
        """Return the messages in some states, oldest first."""
        return sorted((each for each in self.messages.values() if each.state in states), key=lambda each: each.bookmark)

    def leases(self) -> Iterable[Lease]:
        """Return every lease of every subscription."""
        return (lease for subscription in self.subscriptions.values() for lease in subscription.leases)

    def enter(self, message: Message) -> None:
        """Let a message in, if it matches."""
        if self.rules.filter is not None and self.rules.filter(message.body) is not True:
            return
        self.messages[message.bookmark] = message
        message.is_barrier = self.rules.barrier is not None and self.rules.barrier(message.body) is True
        message.state = "held" if message.is_barrier else "inactive" if self.rules.depth else "available"
        delay_new(message)

    def activate(self) -> None:
        """Let the oldest inactive messages in, as far as there is room; what was acknowledged before is skipped (R81, R83)."""
        depth = self.rules.depth
        while (waiting := self.having("inactive")) and (not depth or len(self.having(*IN_QUEUE)) < depth):
            first, waiting[0].deferred = waiting[0].deferred, None
            waiting[0].state = "available"
            delay_new(waiting[0])
            if first is not None and first > self.now:
                self.remove(waiting[0], "acknowledged")

    def release(self) -> None:
        """Give every subscription the barriers that nothing stands before (R68, R70)."""
        while not self.paused and self.subscriptions and (held := self.having("held")):
            if any(each.bookmark < held[0].bookmark for each in self.having(*IN_QUEUE, "inactive")):
                break
            self.remove(held[0], "released")
            for subscription in self.subscriptions.values():
                if subscription.filter is None or subscription.filter(held[0].body) is True:
                    subscription.barriers.append(held[0].bookmark)

    def next(self, name: str, limit: int) -> Lease | None:
        """Return the next messages, or the next barrier alone; None when nothing is there."""
        subscription = self.subscriptions[name]
        if self.paused or (subscription.alarm is not None and self.now < subscription.alarm[0]):
            return None
        barrier = next((each for each in subscription.barriers[:1] if subscription.may_take(each)), None)
        if barrier is not None and subscription.receives and self.backlog(subscription):
            # It comes to a receiver that has nothing else in hand (R140), and what is behind it waits.
            return None
        chosen = [] if barrier is not None else self.choose(subscription, min(limit, self.room(subscription)))
        rows = {each.bookmark for each in chosen} if barrier is None else {barrier}
        if not rows:
            return None
        self.granted += 1
        lease = Lease(self.granted, rows, self.now + self.rules.lease_ms, self.now, limit, subscription.planner)
        lease.barrier = barrier is not None
        lease.piece = not lease.barrier and bool(rows & subscription.failed)
        subscription.tried_lone = any(message.lone for message in chosen)
        subscription.tried_marked = any(message.kills for message in chosen)
        subscription.barrier_deliveries += lease.barrier
        # Under those of a receiver something may come late, and others of it are open (R131, R133).
        kept = [each for each in subscription.leases if subscription.receives and (each.claim or self.outstanding(each))]
        subscription.leases = [*(each for each in subscription.leases if each.held or each in kept), lease]
        if subscription.until is not None:
            subscription.given |= rows
        for message in chosen:
            self.take(message, lease)
        if subscription.alarm is not None:
            tries = subscription.alarm[1] + 1
            subscription.alarm = (self.now + self.rules.delay_ms(tries, 30_000), tries)
        if self.rules.at_most_once:
            for message in chosen:
                self.remove(message, "delivered")
        return lease

    def take(self, message: Message, lease: Lease) -> None:
        """Let a lease hold a message, and count the delivery."""
        self.let_go(message)
        message.state, message.deliveries = "leased", message.deliveries + 1
        lease.held.add(message.bookmark)
        lease.claim.add(message.bookmark)

    def choose(self, subscription: Subscription, count: int) -> list[Message]:
        """Return the messages that are due to a subscription: those that it tries apart, or a batch."""
        heads = self.allowed(subscription)

        def are_together(messages: list[Message]) -> list[Message]:
            return [each for each in messages if not (each.lone or (subscription.receives and each.kills))]

        # What stands behind one that is tried only alone waits with it.
        runs = order.with_runs(self, are_together(heads), are_together(self.free(subscription)))
        batch = sorted(runs, key=lambda each: (-self.rank(each), each.bookmark))
        failed = [each for each in self.free(subscription) if each.bookmark in subscription.failed and not each.lone]
        piece = order.with_runs(self, [each for each in heads if each in failed], failed)
        apart = subscription.tries_apart(heads, sorted(piece, key=lambda each: each.bookmark))
        if subscription.receives:
            marked = [each for each in heads if each.kills]
            # At most in every second fetch while others wait (R138).
            apart = apart or ([] if batch and subscription.tried_marked else marked[:1])
            if any(each.kills for each in apart) and self.backlog(subscription):
                return []
        return (apart or batch)[:count]

    def allowed(self, subscription: Subscription) -> list[Message]:
        """Return what a subscription may be given, of each key the oldest, whatever room it has, oldest first."""
        heads = [each for each in self.free(subscription) if not self.is_blocked(each)]
        return [each for each in heads if each.bookmark not in subscription.overrun]

    def free(self, subscription: Subscription) -> list[Message]:
        """Return what a subscription may be given if its key allows it, oldest first."""
        ends = [each.bookmark for each in self.having("held")[:1]] + subscription.barriers[:1]
        return [
            message
            for message in self.having("available", "delayed")
            if (message.state == "available" or message.due <= self.now)
            and all(message.bookmark < end for end in ends)
            and (subscription.filter is None or subscription.filter(message.body) is True)
            and subscription.may_take(message.bookmark)
        ]

    def rank(self, message: Message) -> int:
        """Return a message's priority; what is no number from 0 on ranks lowest (R66)."""
        value = None if self.rules.priority is None else self.rules.priority(message.body)
        return value if isinstance(value, int) and value >= 0 else -1

    def is_blocked(self, message: Message, *, beside: Container[int] = ()) -> bool:
        """Return whether an older message of its key is in the queue, or any other of it is leased, but those it would go with."""
        under_way = {row for lease in self.leases() for row in self.outstanding(lease)}
        return any(
            (each.state in (*IN_QUEUE, "inactive") and each.bookmark < message.bookmark) or each.bookmark in under_way
            for each in self.messages.values()
            if order.is_alike(self, each, message) and each is not message and each.bookmark not in beside
        )

    def room(self, subscription: Subscription) -> int:
        """Return how many more messages may be under way (R24, R31), and are tried at once after batches that failed."""
        mine, all_of_them = self.backlog(subscription), sum(map(self.backlog, self.subscriptions.values()))
        limits = [(subscription.backlog, mine), (self.rules.max_per_subscription, mine), (self.rules.max_backlog, all_of_them)]
        rooms = [limit - used for number, (limit, used) in enumerate(limits) if limit or number == 0]
        return max(0, min([*rooms, *([] if subscription.most is None else [subscription.most])]))

    def backlog(self, subscription: Subscription) -> int:
        """Return what a subscription was given and has not acknowledged, or lost the lease of (R17, R23, R31, R71)."""
        return sum(len(self.outstanding(each)) for each in subscription.leases)

    def outstanding(self, lease: Lease) -> set[int]:
        """Return what of a lease counts; at most once it is all of it, until the proof or its end."""
        counts_whole = self.rules.at_most_once and not (lease.barrier or lease.proven or lease.lapsed)
        return lease.rows if counts_whole else lease.held

    def settle(self, message: Message, outcome: str, due: int | None, *, by_hand: bool = False) -> None:
        """Let an outcome take effect."""
        if outcome != "cancel":
            self.remove(message, "acknowledged" if outcome == "acknowledge" else "forced_expire")
            return
        if due is None and self.rules.backoff is not None:
            due = self.now + self.rules.delay_ms(message.cancels)
        # Whoever had it lived to say so (R138).
        message.cancels, message.marks = message.cancels + 1, 0
        if self.rules.max_cancels and message.cancels > self.rules.max_cancels:
            self.remove(message, "max_cancels")
        else:
            self.give_back(message, due)
            # A cancel by hand acts as if the lease had ended; its own batch has nothing more to say.
            self.let_go(message, claimed=(message.state == "dead") != by_hand)

    def remove(self, message: Message, reason: str) -> None:
        """Take a message out of the queue; some reasons make a dead letter (R13, R58)."""
        message.state = "dead" if reason in DEAD_REASONS else "removed"
        message.reason, message.left_at = reason, self.now
        message.lone = message.marks = 0
        for subscription in self.subscriptions.values():
            subscription.suspects.pop(message.bookmark, None)
            subscription.failed.discard(message.bookmark)
        self.let_go(message, claimed=reason == "max_deliveries")
        if message.state == "dead" and self.letters is not None:
            self.letters.take_letter(message)
        if message.state == "removed" and reason != "redriven":
            self.journal.end_letter(self, message.bookmark, reason)

    def take_letter(self, message: Message) -> None:
        """Let a dead letter in by reference; what is still here stays as it is."""
        known = self.messages.get(message.bookmark)
        if known is None or known.state == "removed":
            self.messages[message.bookmark] = Message(message.bookmark, message.body, self.now, None)

    def give_back(self, message: Message, due: int | None, *, undelivered: bool = False) -> None:
        """Return a message to the queue, unless it is too old or was delivered too often (R52)."""
        message.deliveries -= undelivered
        if self.is_old(message):
            self.remove(message, "time_limit")
        elif self.rules.max_deliveries and message.deliveries >= self.rules.max_deliveries:
            self.remove(message, "max_deliveries")
        else:
            message.state, message.due = ("available", 0) if due is None or due <= self.now else ("delayed", due)
            self.let_go(message, claimed=True)

    def let_go(self, message: Message, *, claimed: bool = False) -> None:
        """Nobody holds the message any more, and nobody may still settle it, unless it stays `claimed`."""
        for lease in self.leases():
            lease.held.discard(message.bookmark)
            if not claimed:
                lease.claim.discard(message.bookmark)

    def is_old(self, message: Message) -> bool:
        """Return whether a message is past its age; its own expiration wins."""
        if message.expires_at is not None:
            return message.expires_at <= self.now
        return self.rules.expiration_ms is not None and message.entered_at + self.rules.expiration_ms <= self.now


def delay_new(message: Message) -> None:
    """Let a message wait that was published with a delay, once it would be available (R128)."""
    if message.state == "available" and message.not_before is not None:
        message.state, message.due, message.not_before = "delayed", message.not_before, None
