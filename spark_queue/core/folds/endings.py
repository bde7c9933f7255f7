"""Folds of records that give messages back, or end them."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.message_files.segment import EntryTraits
from spark_queue.core.records import DeadLettered, Record, Redriven, Return, Returned
from spark_queue.core.state.alarm import LONE_FAILURES_LIMIT, Alarm, Suspect
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import Event, State
from spark_queue.core.state.subscription import Subscription


def returned(ledger: QueueLedger, record: Record) -> None:
    """Give rows back to the queue."""
    rows, lease = to_bitmap(record.ranges), ledger.leases.get(int(record.lease or 0))
    body = record.body_as(Returned)
    undelivered, alone = body.undelivered, body.alone
    if record.due_at_ms is None:
        ledger.move(rows, Event.RETURNED)
    else:
        ledger.postpone(rows, record.due_at_ms)
    if alone:
        _failed_alone(ledger, ledger.subscriptions[str(record.subscription)], record, body, rows.min())
    elif record.reason == Return.CANCELLED:
        ledger.cancelled.increment(rows)
    if undelivered or record.reason == Return.ORDER_KEY or (record.reason == Return.ISOLATED and not alone):
        ledger.delivered.decrement(rows)
    if body.marked:
        ledger.marks.increment(rows)
    elif record.reason == Return.CANCELLED:
        # Its receiver lived to say so.
        ledger.marks.forget(rows)
    ledger.take_away(rows)
    if lease is not None:
        lease.undelivered = lease.undelivered or undelivered
        subscription = ledger.subscriptions[lease.subscription]
        if record.reason == Return.ISOLATED and not alone:
            # The rest of the lease is a piece of the batch, too; a dead letter is recoverable by a late proof alone.
            subscription.failed = rows | (lease.recoverable - ledger.rows[State.DEAD])
        if body.limit is not None:
            subscription.isolation_limit = body.limit
        if record.reason in (Return.CANCELLED, Return.ISOLATED, Return.ORDER_KEY) or (alone and lease.failure is not None):
            lease.recoverable -= rows
    ledger.returned_counts[str(record.reason)] += len(rows)


def _failed_alone(ledger: QueueLedger, subscription: Subscription, record: Record, body: Returned, row: int) -> None:
    """Note a message that failed alone, and, of a suspect, what was counted before this delivery."""
    counted = (ledger.cancelled.of(row), ledger.lone_failures.of(row))
    before = Suspect(deliveries=max(0, ledger.delivered.of(row) - 1), cancels=counted[0], lone_failures=counted[1])
    ledger.lone_failures.increment(BitMap64([row]))
    if record.reason == Return.CANCELLED:
        ledger.cancelled.increment(BitMap64([row]))
    if not body.counts:
        subscription.suspects.setdefault(row, before).error = body.error
    if subscription.is_stopped:
        ledger.acquit(row, subscription.suspects[row])
    if row in subscription.failed:
        # It is the one that was searched for.
        subscription.failed = BitMap64()
    stuck = ledger.lone_failures.at_least(LONE_FAILURES_LIMIT + 1, ledger.entered)
    if row in stuck:
        since_ms = record.at_ms if ledger.stuck is None or len(stuck) == 1 else ledger.stuck.since_ms
        ledger.stuck = Alarm(error=body.error or "its runs vanished", since_ms=since_ms)


def deferred(ledger: QueueLedger, record: Record) -> None:
    """Remember an acknowledgement of what is not active yet."""
    ledger.defer(to_bitmap(record.ranges) & ledger.rows[State.INACTIVE], int(record.due_at_ms or 0))


def dead_lettered(ledger: QueueLedger, record: Record) -> None:
    """Let the dead letters of the source queue in, by reference."""
    rows = to_bitmap(record.ranges)
    # Letters that it still has after its source was reset stay as they are.
    again, new = rows & ledger.rows[State.REMOVED], rows - ledger.entered
    ledger.move(again, Event.REENTERED)
    ledger.enter(EntryTraits(rows=new, expires={}))
    ledger.ownership.begin_life(rows, record.body_as(DeadLettered).life)
    ledger.ownership.disown(rows)
    # Its age here counts from now.
    ledger.begun.replace(again | new, record.at_ms)


def redriven(ledger: QueueLedger, record: Record) -> None:
    """Let dead letters back into their queue as if they were new; in the dead-letter queue they are gone."""
    rows = to_bitmap(record.ranges)
    letters = rows & ledger.rows[State.DEAD]
    ledger.move(rows, Event.REDRIVEN)
    ledger.drop_recoverable(rows, but=None)
    ledger.delivered.forget(rows)
    ledger.cancelled.forget(rows)
    ledger.removed_counts.subtract(ledger.dead_letters.take_back(letters))
    # Its age counts from now: by its old one it would be gone at once.
    ledger.expires.replace(letters, None)
    ledger.forget_gone(record.at_ms)
    ledger.begun.replace(letters, record.at_ms)
    ledger.ownership.disown(rows)
    ledger.ownership.begin_life(letters, record.body_as(Redriven).life)
    if letters and ledger.is_replicated and ledger.definition.initial_owner is not None:
        ledger.give(letters, term=0, owner=ledger.definition.initial_owner)
