"""Folds of records about barriers."""

from __future__ import annotations

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.folds.subscriptions import seen
from spark_queue.core.records import BarrierReceived, BarrierReleased, Record, Removal
from spark_queue.core.state.alarm import Alarm
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import Event


def barriers_decided(ledger: QueueLedger, record: Record) -> None:
    """Note that a record says of messages whether they are barriers; who folds the log knew it as they entered."""
    ledger.unsaid -= to_bitmap(record.ranges)


def released(ledger: QueueLedger, record: Record) -> None:
    """Take barriers out of the queue and give them to the subscriptions that the record names (R70, R71)."""
    rows = to_bitmap(record.ranges)
    ledger.move(rows, Event.RELEASED)
    # Also those whose files are retired since, of which this record tells alone.
    ledger.barriers |= rows
    for name in record.body_as(BarrierReleased).subscriptions:
        ledger.subscriptions[name].barriers |= rows


def received(ledger: QueueLedger, record: Record) -> None:
    """Note that a subscription is done with its barrier, or gave up on it."""
    subscription = seen(ledger, record)
    rows = to_bitmap(record.ranges)
    if rows & subscription.barriers[:1]:
        subscription.barrier_deliveries = 0
    subscription.barriers -= rows
    if record.reason == Removal.MAX_DELIVERIES:
        ledger.barriers_given_up += 1
        reason = record.body_as(BarrierReceived).error or "its runs vanished"
        error = f"subscription '{subscription.name}' gave up barrier {rows.min()}: {reason}"
        # It pauses nothing, and one that does says more.
        subscription.alarm = subscription.alarm or Alarm(error=error, since_ms=record.at_ms)
