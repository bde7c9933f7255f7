"""What records about returned, removed and dead messages change in a queue's ledger."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.alarm import Suspect
from spark_queue.core.ledger import QueueLedger
from spark_queue.core.lifecycle import Event, State
from spark_queue.core.ranges import to_bitmap
from spark_queue.core.records import DEAD_LETTER_REASONS, Pause, Record, Removal, Return
from spark_queue.core.segment import EntryFacts


def returned(ledger: QueueLedger, record: Record) -> None:
    """Give rows back to the queue."""
    rows, lease = to_bitmap(record.ranges), ledger.leases.get(int(record.lease or 0))
    undelivered, alone = record.detail.get("undelivered", False), record.detail.get("alone", False)
    ledger.move(rows, Event.RETURNED if record.due_at_ms is None else Event.POSTPONED)
    if record.due_at_ms is not None:
        ledger.delayed[record.due_at_ms] = ledger.delayed.get(record.due_at_ms, BitMap64()) | rows
    if alone:
        _suspect(ledger, record, rows.min())
    if record.reason == Return.CANCELLED:
        ledger.cancelled.increment(rows)
    if undelivered or record.reason == Return.ORDER_KEY or (record.reason == Return.ISOLATED and not alone):
        ledger.delivered.decrement(rows)
    if alone and Pause.ALARM in ledger.pauses:
        ledger.acquit(rows.min())
    if lease is not None:
        lease.undelivered = lease.undelivered or undelivered
        if "limit" in record.detail:
            ledger.subscriptions[lease.subscription].isolation_limit = record.detail["limit"]
        if record.reason in (Return.CANCELLED, Return.ISOLATED, Return.ORDER_KEY):
            lease.claim -= rows
    ledger.returned_counts[str(record.reason)] += len(rows)


def _suspect(ledger: QueueLedger, record: Record, row: int) -> None:
    """Note a message that failed alone, and what was counted before this delivery."""
    before = Suspect(deliveries=max(0, ledger.delivered.of(row) - 1), cancels=ledger.cancelled.of(row))
    ledger.suspects.setdefault(row, before).error = record.detail.get("error")


def removed(ledger: QueueLedger, record: Record) -> None:
    """Take rows out of the queue: the delete marker."""
    rows = to_bitmap(record.ranges)
    dead = record.reason in DEAD_LETTER_REASONS
    taken_back = BitMap64() if dead else ledger.rows[State.DEAD] & rows
    ledger.move(rows, Event.DEAD_LETTERED if dead else Event.REMOVED)
    # Only the end of a lease by max_deliveries may be taken back by that lease's late proof (P5).
    ledger.drop_claims(rows, but=record.lease if record.reason == Removal.MAX_DELIVERIES else None)
    if record.reason != Removal.DELIVERED:
        ledger.delivered.forget(rows)
        ledger.cancelled.forget(rows)
    if dead:
        ledger.dead_letters.add(record, rows)
    elif taken_back:
        ledger.removed_counts.subtract(ledger.dead_letters.take_back(taken_back))
    ledger.removed_counts[str(record.reason)] += len(rows)


def deferred(ledger: QueueLedger, record: Record) -> None:
    """Remember an acknowledgement of what is not active yet."""
    ledger.defer(to_bitmap(record.ranges) & ledger.rows[State.INACTIVE], int(record.due_at_ms or 0))


def dead_lettered(ledger: QueueLedger, record: Record) -> None:
    """Let the dead letters of the source queue in, by reference."""
    rows = to_bitmap(record.ranges)
    # What it still has, after its source was reset, stays as it is.
    again, new = rows & ledger.rows[State.REMOVED], rows - ledger.entered
    ledger.move(again, Event.REENTERED)
    ledger.enter(EntryFacts(rows=new, expires={}))
    # Its age here counts from now.
    if again:
        ledger.begun.replace(again, None)
    ledger.begun.add({record.at_ms: again | new})


def redriven(ledger: QueueLedger, record: Record) -> None:
    """Let dead letters back into their queue as if they were new; in the dead-letter queue they are gone."""
    rows = to_bitmap(record.ranges)
    letters = rows & ledger.rows[State.DEAD]
    ledger.move(rows, Event.REDRIVEN)
    ledger.drop_claims(rows, but=None)
    ledger.delivered.forget(rows)
    ledger.cancelled.forget(rows)
    ledger.removed_counts.subtract(ledger.dead_letters.take_back(letters))
    # Its age counts from now: by its old one it would be gone at once.
    ledger.expires.replace(letters, None)
    ledger.begun.replace(ledger.rows[State.REMOVED], None)
    ledger.begun.replace(letters, record.at_ms)
