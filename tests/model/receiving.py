"""How receivers are given messages, settle and give back each by itself, and how they end (R131 to R140)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from tests.model import batches, order
from tests.model.model import IN_QUEUE, Queue
from tests.model.parts import Lease, Message, Subscription


@dataclass(frozen=True, kw_only=True)
class Said:
    """One outcome that a receiver says of some messages, which it had under a lease."""

    lease: int
    rows: frozenset[int]
    outcome: str
    #: With a cancel: until when they wait, if it says so; and whether its function failed on each of them.
    due: int | None = None
    failed: bool = False


#: What has become of a message that an outcome came too late for, and who has it.
Fate = tuple[str, str | None]


def in_hand(queue: Queue, subscription: Subscription, newest: int | None = None) -> list[Lease]:
    """Return what the present start of a receiver has in hand, up to the newest lease that has arrived."""
    own = [each for each in subscription.leases if each.planner == subscription.planner]
    open_ones = [each for each in own if queue.outstanding(each) or (each.barrier and not each.proven)]
    return [each for each in open_ones if newest is None or each.number <= newest]


def next_lease(queue: Queue, name: str, limit: int, finished: int, overrun: set[int]) -> Lease | None:
    """Give a receiver more, or again what it has not heard of (R135); beside a barrier, and beside what may kill it, nothing."""
    subscription = queue.subscriptions[name]
    subscription.heard_at, subscription.overrun = queue.now, overrun
    hand = in_hand(queue, subscription)
    lost = [each for each in hand if each.number > finished]
    if lost:
        return lost[0]
    if any(each.barrier or any(queue.messages[bookmark].kills for bookmark in each.held) for each in hand):
        return None
    return queue.next(name, limit)


def is_refused(queue: Queue, name: str, said: Sequence[Said]) -> str | None:
    """Return why a whole call is refused, if it is: it names what never entered, a message twice, or wants a barrier expired."""
    named: set[int] = set()
    for each in said:
        if not each.rows <= queue.messages.keys():
            return "UNKNOWN_BOOKMARK"
        if each.rows & named:
            return "OUTCOME_INVALID"
        named |= each.rows
    leases = [(each, lease_of(queue, name, each)) for each in said]
    if any(lease is not None and lease.barrier and each.outcome == "expire" for each, lease in leases):
        return "OUTCOME_INVALID"
    return None


def lease_of(queue: Queue, name: str, said: Said) -> Lease | None:
    """Return the lease that an outcome names, if it is one of this receiver's and something may still come under it."""
    subscription = queue.subscriptions.get(name)
    if subscription is None or not subscription.receives:
        return None
    return next((each for each in subscription.leases if each.number == said.lease), None)


def settle(queue: Queue, name: str, said: Sequence[Said]) -> dict[int, Fate]:
    """Let each outcome act at once, by itself; returns what those messages are that it came too late for (R132, R133)."""
    if name in queue.subscriptions:
        queue.subscriptions[name].heard_at = queue.now
    refused: dict[int, Fate] = {}
    leases = [lease_of(queue, name, each) for each in said]
    behind = _let_go_behind(queue, name, list(zip(said, leases, strict=True)))
    for each, lease in zip(said, leases, strict=True):
        done = {row for row in sorted(each.rows - behind) if _settle(queue, name, each, lease, row)}
        # The alarm of a function that fails on everything may have come with one of them, so they act in their order.
        refused |= {row: ("behind", None) if row in behind else _fate(queue, row) for row in each.rows - done}
    return refused


def renew(queue: Queue, name: str, planner: object, newest: int) -> list[tuple[int, int]]:
    """Extend all that the present start has in hand, up to a lease; returns those that stand, and for how long (R136)."""
    subscription = queue.subscriptions[name]
    if planner != subscription.planner:
        return []
    subscription.heard_at = queue.now
    standing = [each for each in in_hand(queue, subscription, newest) if not each.barrier]
    for lease in standing:
        batches.renew(queue, lease)
        lease.confirmed = True
    return [(each.number, each.due - queue.now) for each in standing]


def leave(queue: Queue, name: str, begun: Container[int], keeps: set[int]) -> bool:
    """Return at once what a receiver has, but what it keeps; only what it had begun counts (R137); returns whether it is gone."""
    subscription = queue.subscriptions[name]
    subscription.heard_at = queue.now
    for lease in subscription.leases:
        for bookmark in sorted(lease.held - keeps, key=lambda each: (each not in begun, each)):
            queue.give_back(queue.messages[bookmark], None, undelivered=bookmark not in begun)
    if keeps:
        return False
    subscription.left = True
    for lease in subscription.leases:
        end_silently(queue, lease)
    return subscription.ends


def end_silently(queue: Queue, lease: Lease, *, marks: bool = True) -> None:
    """Give back what a receiver had of which nothing is heard, as never delivered, and mark it (R138).

    Only what it had alone, as one of those that may kill, and after a renewal that named it, counts as delivered. A barrier is its
    subscription's still (R71), and at most once nothing comes back (R17).
    """
    lease.proven = lease.proven or lease.barrier
    lease.lapsed = True
    for message in [queue.messages[bookmark] for bookmark in sorted(lease.held)]:
        is_counted = message.kills and lease.confirmed and len(lease.rows) == 1
        queue.give_back(message, None, undelivered=not is_counted)
        if message.state in IN_QUEUE:
            message.marks += marks


def forgotten(queue: Queue) -> Iterable[str]:
    """Return the subscriptions that were made for a receiver, hold nothing, and were not heard of for a lease (R140)."""
    for name, subscription in queue.subscriptions.items():
        if subscription.ends and queue.now - subscription.heard_at > queue.rules.lease_ms and not queue.backlog(subscription):
            yield name


def _let_go_behind(queue: Queue, name: str, parts: Sequence[tuple[Said, Lease | None]]) -> set[int]:
    """Give back all that a receiver has of the keys of messages that it cancels, behind them, whatever becomes of these (R139)."""
    if name not in queue.subscriptions:
        return set()
    cancelled = {row for each, lease in parts if lease is not None and each.outcome == "cancel" for row in each.rows & lease.held}
    held = {row for lease in queue.subscriptions[name].leases for row in lease.held}
    behind = {
        row for row in held for old in cancelled if old < row and order.is_alike(queue, queue.messages[old], queue.messages[row])
    }
    for row in sorted(behind):
        order.go_back(queue, queue.messages[row])
    return behind


def _settle(queue: Queue, name: str, said: Said, lease: Lease | None, row: int) -> bool:
    """Let an outcome act on one message; returns whether it is not too late."""
    message, subscription = queue.messages[row], queue.subscriptions.get(name)
    if lease is not None and subscription is not None and lease.barrier:
        return _settle_barrier(queue, subscription, lease, said.outcome, row)
    if queue.rules.at_most_once and not message.is_barrier:
        # They are gone since they were granted: whatever is said frees backlog and key, and nothing comes too late (R40, R140).
        if lease is not None and row in queue.outstanding(lease):
            lease.rows.discard(row)
        # What was given back before the queue had these semantics is there still.
        return message.state == "removed"
    if lease is None or subscription is None:
        return False
    if said.outcome == "acknowledge":
        return _acknowledge(queue, subscription, lease, message)
    if row not in lease.held:
        return False
    if said.failed and said.outcome == "cancel":
        batches.fail_alone(queue, subscription, message, beside={row}, is_told=True, is_cancelled=True, claimed=False)
        # What becomes active as one leaves can tell whether the next one is to blame (R81, 15.12).
        queue.activate()
    else:
        queue.settle(message, said.outcome, said.due)
    return True


def _acknowledge(queue: Queue, subscription: Subscription, lease: Lease, message: Message) -> bool:
    """Let a message be done with, if nobody else was granted it since, also after the end of its lease (P5)."""
    if message.bookmark not in lease.claim or not (message.state in IN_QUEUE or batches.take_back(queue, message)):
        return False
    batches.succeed(queue, subscription)
    queue.settle(message, "acknowledge", None)
    return True


def _settle_barrier(queue: Queue, subscription: Subscription, lease: Lease, outcome: str, row: int) -> bool:
    """Let a barrier be received, or come again (R140); one that is cancelled too often is given up."""
    if row not in lease.rows or lease.proven:
        return False
    spent = queue.rules.max_deliveries and subscription.barrier_deliveries >= queue.rules.max_deliveries
    if outcome != "cancel" or spent:
        batches.receive(subscription, lease)
    if outcome != "cancel":
        batches.succeed(queue, subscription)
    lease.proven = True
    return True


def _fate(queue: Queue, row: int) -> Fate:
    """Return what has become of a message (R133)."""
    for name, subscription in queue.subscriptions.items():
        if any(row in lease.held for lease in subscription.leases):
            return "leased", name
    return {"removed": "removed", "dead": "dead_letter"}.get(queue.messages[row].state, "returned"), None
