"""The messages that a subscription may be given now."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below
from spark_queue.core.deciding.barrier import before_held
from spark_queue.core.deciding.instances.claims import claimable
from spark_queue.core.deciding.shares import left_within, room_within
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.subscription import Subscription


def is_paused(work: UnitOfWork, subscription: Subscription) -> bool:
    """Return whether a subscription is given nothing now, even if there is something: paused by hand, or until its next probe."""
    alarm = subscription.alarm
    return work.ledger.paused or (alarm is not None and alarm.probe_at_ms is not None and work.now_ms < alarm.probe_at_ms)


def grantable(work: UnitOfWork, subscription: Subscription) -> BitMap64:
    """Return the messages that may be leased to a subscription now, beyond its room, too; of those of a key the oldest.

    What its receiver works on still, beyond the limit of the lease, is there for others; what is behind it waits (R136).
    """
    heads, overrun = work.ledger.selection.heads(free_of(work, subscription)), work.shares.overrun(subscription)
    return heads - overrun if overrun else heads


def free_of(work: UnitOfWork, subscription: Subscription) -> BitMap64:
    """Return the messages that a subscription may be given now, as far as the order of their keys allows."""
    rows = work.ledger.rows[State.AVAILABLE]
    due = work.ledger.due(work.now_ms)
    if due:
        rows = rows | due
    # Claimed messages wait for a look, and no more are claimed meanwhile than somebody has room for.
    if not work.ledger.ownership.claims and (lost := claimable(work)):
        rows = rows | (lost - work.ledger.not_due(work.now_ms))
    if subscription.run_until is not None:
        rows = below(rows, subscription.run_until) - subscription.run_granted
    if subscription.barriers:
        # One that waits for the next run still comes before everything behind it.
        rows = below(rows, subscription.barriers.min())
    return work.visible_to_subscription(subscription, before_held(work.ledger, rows))


def delayed_of(work: UnitOfWork, subscription: Subscription) -> tuple[int, int | None]:
    """Count the messages of a run that wait for their time as it ends, and tell when the first of them comes."""
    rows = work.ledger.rows[State.DELAYED] - work.ledger.due(work.now_ms)
    if subscription.run_until is not None:
        rows = below(rows, subscription.run_until)
    rows = work.visible_to_subscription(subscription, rows)
    return len(rows), min((due_at_ms for due_at_ms, part in work.ledger.delayed.items() if part.intersect(rows)), default=None)


def without_lone(ledger: QueueLedger, rows: BitMap64) -> BitMap64:
    """Return those of `rows` that never failed alone: batches are made of these (DESIGN 15.12)."""
    lone = ledger.lone_failures.at_least(1, rows)
    # A copy of ten million waiting messages costs more than the rest of a grant.
    return rows - lone if lone else rows


def together(ledger: QueueLedger, subscription: Subscription, rows: BitMap64) -> BitMap64:
    """Return those of `rows` that may be granted beside others: no receiver is given one of which receivers died (R138)."""
    rows = without_lone(ledger, rows)
    dying = ledger.dying(rows) if subscription.receives else BitMap64()
    return rows - dying if dying else rows


def is_withheld(work: UnitOfWork, subscription: Subscription) -> bool:
    """Return whether messages that a subscription has room for wait for others, until they come or their window ends.

    They may be kept for others, or have no room in the queue beside those (R31), or peers are to be heard first (R130). Nobody
    waits for room that leases of others fill.
    """
    backlogs = work.ledger.backlogs()
    left = left_within(work.ledger, backlogs)
    if is_paused(work, subscription) or min(left, room_within(work.ledger, subscription, backlogs)) <= 0:
        return False
    if not work.may_grant():
        return bool(grantable(work, subscription))
    kept = BitMap64.union(BitMap64(), *(rows for name, rows in work.shares.kept.items() if name != subscription.name))
    rows = grantable(work, subscription) if kept else kept
    return bool(rows) and (len(kept) >= left or kept.intersect(rows))
