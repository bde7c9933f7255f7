"""Barriers: held until nothing stands before them, then given to every subscription as a batch of its own (R67 to R78).

A barrier is *held* while any message with a lower bookmark is in the queue: available, leased or delayed. Nothing behind a held
barrier is granted, so no lease ever covers a message behind one, and messages that a lease gives back stand before it again. Once
nothing stands before it, it is *released* to the subscriptions of that moment and leaves the queue. From then on it is theirs:
each has it *pending* until the proof of its batch records that it was *received*. No lease holds it, so nothing can expire,
and a batch that was not proven is read again.
"""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.ranges import below
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Removal
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import ACTIVE, State
from spark_queue.core.state.subscription import Subscription


def release(work: UnitOfWork) -> None:
    """Release every barrier that nothing stands before (R68 to R73, R78).

    While nobody subscribes it waits, and while the queue is paused by its user.
    """
    ledger = work.ledger
    if not ledger.rows[State.HELD] or not ledger.subscriptions or ledger.paused:
        return
    waiting = [rows.min() for state in (*ACTIVE, State.INACTIVE, State.REMOTE) if (rows := ledger.rows[state])]
    due = below(ledger.rows[State.HELD], min(waiting)) if waiting else ledger.rows[State.HELD].copy()
    while due:
        names, rows = _oldest_with_takers(work, due)
        work.emit(records.BarrierReleased(subscriptions=tuple(names)), rows)
        due -= rows


def say_barriers(work: UnitOfWork) -> None:
    """Record, once, which messages are barriers that entered while the queue was set aside, and which are not (R75, R122)."""
    unsaid, barriers = work.ledger.unsaid, work.ledger.barriers
    for part, is_barrier in ((unsaid & barriers, True), (unsaid - barriers, False)):
        if part:
            work.emit(records.BarriersDecided(barrier=is_barrier), part)


def _oldest_with_takers(work: UnitOfWork, due: BitMap64) -> tuple[list[str], BitMap64]:
    """Return the subscriptions whose filter matches the oldest of `due`, and the barriers up to the first that others get (R73).

    A subscription with a principal that may not read the queue now is current all the same: the next attach finds its barrier
    (R70), unless that is hidden then.
    """
    names, until = [], due.max() + 1
    for name, subscription in sorted(work.ledger.subscriptions.items()):
        matching = work.ledger.selection.matching(due, subscription.filter)
        matching = work.entitled(subscription, matching) if work.may_read(subscription) else matching
        if due.min() in matching:
            names.append(name)
        others = due - matching if due.min() in matching else matching
        until = min(until, others.min()) if others else until
    return names, below(due, until)


def before_held(ledger: QueueLedger, rows: BitMap64) -> BitMap64:
    """Return those of `rows` that stand before the oldest held barrier (R69)."""
    held = ledger.rows[State.HELD]
    return below(rows, held.min()) if held else rows


def waits_for_others(ledger: QueueLedger) -> bool:
    """Return whether a barrier is held, and only messages of other instances stand before the oldest one."""
    if not ledger.rows[State.HELD] or not before_held(ledger, ledger.rows[State.REMOTE]):
        # Each poll of a queue with an order key asks; mostly no barrier is held.
        return False
    return not any(before_held(ledger, ledger.rows[state]) for state in (*ACTIVE, State.INACTIVE))


def pending(subscription: Subscription) -> BitMap64:
    """Return the barrier that a subscription must be given next; empty when there is none, or it waits for the next run."""
    barrier = subscription.barriers[:1]
    if subscription.run_until is not None:
        barrier = below(barrier, subscription.run_until) - subscription.run_granted
    return barrier


def receive(work: UnitOfWork, lease: Lease) -> None:
    """Note that a subscription has got its barrier; one whose batch was cancelled comes again, up to `max_deliveries`."""
    subscription = work.ledger.subscriptions[lease.subscription]
    if not lease.rows & subscription.barriers:
        return
    if not lease.gives_back:
        work.emit(records.BarrierReceived(), lease.rows, of=lease)
    elif is_spent(work, subscription) and not lease.stopped:
        give_up(work, lease, error=lease.failure)


def deliveries(subscription: Subscription) -> Counts:
    """Return how often each of the barriers that a subscription waits for was delivered to it."""
    counts = Counts()
    counts.set(subscription.barriers[:1], subscription.barrier_deliveries)
    return counts


def is_spent(work: UnitOfWork, subscription: Subscription) -> bool:
    """Return whether a subscription's oldest barrier was delivered as often as a message may be."""
    maximum = work.ledger.definition.max_deliveries
    return bool(maximum) and subscription.barrier_deliveries >= maximum


def give_up(work: UnitOfWork, lease: Lease, *, error: str | None) -> None:
    """Count a barrier as received on which fn keeps failing, so that what is behind it goes on; raises an alarm (DESIGN 8)."""
    received = records.BarrierReceived(deliveries=work.ledger.subscriptions[lease.subscription].barrier_deliveries, error=error)
    work.emit(received, lease.rows, of=lease, reason=Removal.MAX_DELIVERIES)
