"""The fold of the delete marker: messages leave their queue, some of them as dead letters."""

from __future__ import annotations

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import DEAD_LETTER_REASONS, Record, Removal, Removed
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import Event, State


def removed(ledger: QueueLedger, record: Record) -> None:
    """Take rows out of the queue: the delete marker."""
    rows = to_bitmap(record.ranges)
    _note_success(ledger, record)
    # A letter that is lost is another one from then on.
    taken_back = ledger.rows[State.DEAD] & rows
    if record.reason == Removal.LOST:
        # Nobody receives a barrier without a body.
        ledger.barriers -= ledger.rows[State.HELD] & rows
    ledger.move(rows, _event(record))
    ledger.forget_gone(record.at_ms)
    if record.reason != Removal.LOST:
        # Only the end of a lease by max_deliveries may be taken back by that lease's late proof (P5), and a loss by any proof:
        # whoever has committed a batch has read it before.
        ledger.drop_recoverable(rows, but=record.lease if record.reason == Removal.MAX_DELIVERIES else None)
    if record.reason != Removal.DELIVERED:
        ledger.delivered.forget(rows)
        ledger.cancelled.forget(rows)
    counts = ledger.dead_letters.take_back(taken_back) if taken_back else {}
    if record.reason in DEAD_LETTER_REASONS:
        ledger.dead_letters.add(record, rows)
    else:
        ledger.ownership.disown(rows)
    if record.body_as(Removed).settled_in is None:
        # A message settled elsewhere left this queue as a dead letter.
        ledger.removed_counts.subtract(counts)
        ledger.removed_counts[str(record.reason)] += len(rows)


def _event(record: Record) -> Event:
    if record.reason == Removal.LOST:
        return Event.LOST
    return Event.DEAD_LETTERED if record.reason in DEAD_LETTER_REASONS else Event.REMOVED


def _note_success(ledger: QueueLedger, record: Record) -> None:
    """End the alarm of a receiver that has acknowledged something: of a stream's success the proof tells."""
    subscription = ledger.subscriptions.get(str(record.subscription))
    if record.reason == Removal.ACKNOWLEDGED and record.lease is not None and subscription is not None and subscription.receives:
        subscription.suspects.clear()
        subscription.alarm = None
