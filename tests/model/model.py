"""A queue, message by message: what the rules say, in plain sets and loops, slow and obvious on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.model.parts import Lease, Message, Question, Rules, Subscription

IN_QUEUE = ("available", "leased", "delayed")


class Queue:
    """One queue of one journal."""

    def __init__(self, rules: Rules, now: int) -> None:
        self.rules = rules
        self.now = now
        self.messages: dict[int, Message] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.granted = 0
        self.paused = False

    def having(self, *states: str) -> list[Message]:
        """Give the messages in some states, oldest first: bookmarks enter in order."""
        return [each for each in self.messages.values() if each.state in states]

    def leases(self) -> Iterable[Lease]:
        """Give every lease of every subscription."""
        return (lease for subscription in self.subscriptions.values() for lease in subscription.leases)

    def enter(self, bookmark: int, body: dict[str, Any], expires_at: int | None) -> None:
        """Let a message in, if it matches."""
        if self.rules.filter is not None and self.rules.filter(body) is not True:
            return
        message = self.messages[bookmark] = Message(bookmark, body, self.now, expires_at)
        if self.rules.barrier is not None and self.rules.barrier(body) is True:
            message.state = "held"
        elif self.rules.depth:
            message.state = "inactive"
        self.settle_down()

    def settle_down(self) -> None:
        """Activate and release until nothing changes (R68, R70, R81, R83)."""
        depth = self.rules.depth
        while depth and len(self.having(*IN_QUEUE)) < depth and (waiting := self.having("inactive")):
            waiting[0].state = "available"
            if waiting[0].deferred is not None and waiting[0].deferred > self.now:
                self.remove(waiting[0], "acknowledged")
        while not self.paused and self.subscriptions and (held := self.having("held")):
            if any(each.bookmark < held[0].bookmark for each in self.having(*IN_QUEUE)):
                break
            self.remove(held[0], "released")
            for subscription in self.subscriptions.values():
                if subscription.filter is None or subscription.filter(held[0].body) is True:
                    subscription.barriers.append(held[0].bookmark)

    def subscribe(self, name: str, *, backlog: int, explicit: bool, wanted: Question) -> None:
        """Begin a subscription, or replace what it asks for (R118)."""
        known = self.subscriptions.setdefault(name, Subscription(backlog))
        known.backlog, known.explicit, known.filter = backlog, explicit, wanted
        self.settle_down()

    def unsubscribe(self, name: str) -> None:
        """End a subscription; what it holds returns."""
        for lease in self.subscriptions[name].leases:
            self.end_lease(lease)
        del self.subscriptions[name]

    def open_lease(self, name: str) -> Lease | None:
        """Give the lease of a subscription that is not proven."""
        return next((lease for lease in self.subscriptions[name].leases if not lease.proven), None)

    def next(self, name: str, limit: int) -> Lease | None:
        """Prove the open lease, and give another: the next messages, or the next barrier alone; None when nothing is there."""
        subscription, done = self.subscriptions[name], self.open_lease(name)
        if done is not None:
            self.prove(done, None if subscription.explicit else "acknowledge")
        if self.paused:
            return None
        if subscription.barriers:
            lease = Lease(self.granted + 1, {subscription.barriers.pop(0)}, 0, barrier=True)
        else:
            chosen = self.choose(subscription, min(limit, self.room(subscription)))
            if not chosen:
                return None
            rows = {each.bookmark for each in chosen}
            for message in chosen:
                self.let_go(message)
                message.state, message.deliveries = "leased", message.deliveries + 1
            lease = Lease(self.granted + 1, rows, self.now + self.rules.lease_ms, held=set(rows), claim=set(rows))
        self.granted += 1
        subscription.leases.append(lease)
        if self.rules.at_most_once:
            lease.pending = not lease.barrier
            for bookmark in lease.held.copy():
                self.remove(self.messages[bookmark], "delivered")
            self.settle_down()
        return lease

    def choose(self, subscription: Subscription, count: int) -> list[Message]:
        """Give the messages that are due to a subscription, first come first."""
        barriers = self.having("held")
        allowed = [
            message
            for message in self.having("available", "delayed")
            if (message.state == "available" or message.due <= self.now)
            and not (barriers and message.bookmark > barriers[0].bookmark)
            and (subscription.filter is None or subscription.filter(message.body) is True)
            and not self.is_blocked(message)
        ]
        return sorted(allowed, key=lambda each: (-self.rank(each), each.bookmark))[:count]

    def rank(self, message: Message) -> int:
        """Give a message's priority; what is no number from 0 on ranks lowest (R66)."""
        value = None if self.rules.priority is None else self.rules.priority(message.body)
        return value if isinstance(value, int) and value >= 0 else -1

    def is_blocked(self, message: Message) -> bool:
        """Tell whether an older message of its key is in the queue, or any other of it is leased."""
        key = self.rules.key
        if key is None or key(message.body) is None:
            return False
        same = [each for each in self.messages.values() if key(each.body) == key(message.body) and each is not message]
        pending = {row for lease in self.leases() if lease.pending for row in lease.rows}
        return any(
            (each.state in IN_QUEUE and each.bookmark < message.bookmark) or each.state == "leased" or each.bookmark in pending
            for each in same
        )

    def room(self, subscription: Subscription) -> int:
        """Give how many more messages may be under way (R24, R31)."""
        mine, all_of_them = self.backlog(subscription), sum(map(self.backlog, self.subscriptions.values()))
        limits = [(subscription.backlog, mine), (self.rules.max_per_subscription, mine), (self.rules.max_backlog, all_of_them)]
        return max(0, min(limit - used for number, (limit, used) in enumerate(limits) if limit or number == 0))

    def backlog(self, subscription: Subscription) -> int:
        """Give what a subscription was given and has not acknowledged, or lost the lease of (R17, R23, R31, R71)."""
        return sum(len(each.rows) if each.pending else len(each.held) for each in subscription.leases)

    def read_late(self, lease: Lease) -> set[int]:
        """Let another planner start read an at-most-once batch that nobody has read; after its end its keys are free (R16)."""
        if lease.read or not (lease.pending or self.rules.key is None):
            return set()
        lease.read = True
        if not lease.pending:
            lease.pending, lease.due = True, self.now + self.rules.lease_ms
        return lease.rows

    def say(self, lease: Lease, rows: Iterable[int], outcome: str, due: int | None) -> None:
        """Note what a batch says of its rows, until its proof."""
        lease.said.update(dict.fromkeys(rows, (outcome, due)))

    def prove(self, lease: Lease, rest: str | None) -> None:
        """End a lease whose batch Spark has committed; `rest` becomes of what it said nothing of."""
        for bookmark in [] if self.rules.at_most_once else sorted(lease.claim):
            message = self.messages[bookmark]
            outcome, due = lease.said.get(bookmark, (rest, None))
            # A dead letter that the lease's own end made is taken back by an acknowledgement, and by nothing else.
            if outcome is not None and (message.state in IN_QUEUE or (message.state == "dead" and outcome == "acknowledge")):
                self.settle(message, outcome, due)
        lease.proven, lease.pending, lease.claim, lease.said = True, False, set(), {}
        self.settle_down()

    def settle(self, message: Message, outcome: str, due: int | None) -> None:
        """Let an outcome take effect."""
        if outcome != "cancel":
            self.remove(message, "acknowledged" if outcome == "acknowledge" else "forced_expire")
            return
        message.cancels += 1
        if self.rules.max_cancels and message.cancels > self.rules.max_cancels:
            self.remove(message, "max_cancels")
        else:
            self.give_back(message, due)
            self.let_go(message, claimed=message.state == "dead")

    def settle_by_hand(self, rows: Iterable[int], outcome: str) -> None:
        """Settle messages by bookmark, whoever holds them (R36, R38, R83)."""
        for message in [self.messages[bookmark] for bookmark in rows]:
            if message.state == "inactive" and outcome == "acknowledge":
                message.deferred = self.now + self.rules.deferral_ms
            elif message.state in IN_QUEUE:
                self.settle(message, outcome, None)
        self.settle_down()

    def purge(self) -> None:
        """Remove everything that is not leased, but barriers."""
        for message in self.having("available", "delayed", "inactive"):
            self.remove(message, "purged")
        self.settle_down()

    def redrive(self) -> None:
        """Let the dead letters come again, with nothing counted against them, as old as their redrive."""
        for message in self.having("dead"):
            message.state, message.deliveries, message.cancels = "available", 0, 0
            message.entered_at, message.expires_at = self.now, None
            self.let_go(message)
        self.settle_down()

    def remove(self, message: Message, reason: str) -> None:
        """Take a message out of the queue; some reasons make a dead letter (R13, R58)."""
        message.state = "dead" if reason in ("max_deliveries", "max_cancels", "forced_expire") else "removed"
        self.let_go(message, claimed=reason == "max_deliveries")

    def give_back(self, message: Message, due: int | None) -> None:
        """Return a message to the queue, unless it is too old or was delivered too often (R52)."""
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
        """Tell whether a message is past its age; its own expiration wins."""
        if message.expires_at is not None:
            return message.expires_at <= self.now
        return self.rules.expiration_ms is not None and message.entered_at + self.rules.expiration_ms <= self.now

    def end_lease(self, lease: Lease) -> None:
        """Give back what a lease holds; an acknowledgement that was not proven is none, the other outcomes hold."""
        for message in [self.messages[bookmark] for bookmark in lease.held]:
            outcome, due = lease.said.get(message.bookmark, ("acknowledge", None))
            if outcome == "acknowledge":
                self.give_back(message, None)
            else:
                self.settle(message, outcome, due)
        self.settle_down()

    def tick(self, now: int) -> None:
        """Let time pass, and do what is due."""
        self.now = now
        for lease in self.leases():
            if lease.due <= now:
                self.end_lease(lease)
                lease.pending = False
        self.expire()

    def expire(self) -> None:
        """Remove what is past its age, unless somebody has it (R50, R51)."""
        for message in self.having("available", "delayed", "inactive"):
            if self.is_old(message):
                self.remove(message, "time_limit")
        self.settle_down()
