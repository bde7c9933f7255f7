"""Folds of records about leases."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.folds.pauses import probe_backoff
from spark_queue.core.folds.subscriptions import seen
from spark_queue.core.records import Claimed, Granted, Record, Renewed, Resumed, Return
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import Event


def granted(ledger: QueueLedger, record: Record) -> None:
    """Lease rows to a subscription."""
    rows, number = to_bitmap(record.ranges), int(record.lease or 0)
    body = record.body_as(Granted)
    is_barrier = body.barrier
    held = BitMap64() if is_barrier else rows
    ledger.move(held, Event.GRANTED)
    subscription = seen(ledger, record)
    subscription.barrier_deliveries += is_barrier
    ledger.forget_leases(subscription.name)
    ledger.drop_recoverable(held, but=None)
    ledger.leases[number] = Lease(
        number=number,
        subscription=subscription.name,
        rows=rows,
        leased=held.copy(),
        recoverable=held.copy(),
        granted_at_ms=record.at_ms,
        begun_at_ms=record.at_ms,
        due_at_ms=int(record.due_at_ms or 0),
        incarnation=body.incarnation,
        limit=body.limit,
        searches=held.intersect(subscription.failed),
        is_barrier=is_barrier,
    )
    subscription.lease = number
    subscription.tried_lone = bool(ledger.lone_failures.at_least(1, held))
    subscription.tried_marked = bool(ledger.dying(held))
    ledger.next_lease = number + 1
    ledger.delivered.increment(held)
    if subscription.run_until is not None:
        subscription.run_granted |= rows
    alarm = subscription.alarm
    if alarm is not None and alarm.probe_at_ms is not None:
        alarm.probes += 1
        alarm.probe_at_ms = record.at_ms + probe_backoff(ledger).delay_ms(alarm.probes)


def resumed(ledger: QueueLedger, record: Record) -> None:
    """Let a lease be what its resume recorded, from now on (P2)."""
    rows, lease = to_bitmap(record.ranges), ledger.leases[int(record.lease or 0)]
    held, body = BitMap64() if lease.is_barrier else rows, record.body_as(Resumed)
    ledger.move(held, Event.RESUMED)
    subscription = seen(ledger, record)
    if body.incarnation != lease.incarnation:
        # Words of the older incarnation are dropped (P4).
        lease.staged.clear()
        lease.lost = BitMap64()
    else:
        lease.lost |= lease.rows - rows
    lease.rows, lease.leased, lease.recoverable = rows, held.copy(), held.copy()
    lease.searches = held.intersect(subscription.failed)
    lease.due_at_ms = int(record.due_at_ms or 0)
    lease.incarnation = body.incarnation
    lease.begun_at_ms = record.at_ms
    lease.resumed = True
    lease.undelivered = False
    lease.failure = None
    lease.stopped = lease.gives_back = False
    lease.vanished_runs = body.vanished_runs
    if body.counted:
        ledger.delivered.increment(held)
        subscription.barrier_deliveries += lease.is_barrier
    if subscription.run_until is not None:
        subscription.run_granted |= rows


def renewed(ledger: QueueLedger, record: Record) -> None:
    """Extend a lease, or of a receiver all that it has in hand, each within its own limit (R136)."""
    subscription, body, due_at_ms = seen(ledger, record), record.body_as(Renewed), int(record.due_at_ms or 0)
    if body.newest is None:
        ledger.leases[int(record.lease or 0)].due_at_ms = due_at_ms
        return
    for lease in ledger.leases_in_hand(subscription, newest=body.newest):
        limit_ms = lease.begun_at_ms + ledger.definition.lease_renewal_limit_ms
        lease.due_at_ms = max(lease.due_at_ms, min(due_at_ms, limit_ms))
        lease.confirmed = True


def claimed(ledger: QueueLedger, record: Record) -> None:
    """Give an at-most-once lease to one planner start; one that had lapsed begins anew."""
    lease = ledger.leases[int(record.lease or 0)]
    lease.handed_to = record.body_as(Claimed).incarnation
    if record.due_at_ms is not None:
        lease.lapsed, lease.begun_at_ms, lease.due_at_ms = False, record.at_ms, record.due_at_ms
    seen(ledger, record)


def lapsed(ledger: QueueLedger, record: Record) -> None:
    """Let an at-most-once lease keep no backlog and no keys any more; its messages stay gone (R16, R31)."""
    rows = to_bitmap(record.ranges)
    ledger.leases[int(record.lease or 0)].lapsed = True
    ledger.selection.order_keys.leave(rows)
    ledger.returned_counts[Return.LEASE_EXPIRED] += len(rows)
