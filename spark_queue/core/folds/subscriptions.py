"""Folds of records about subscriptions, their planners and their expressions."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.records import Attached, Called, ExpressionFailed, Record, Subscribed
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.subscription import Subscription


def seen(ledger: QueueLedger, record: Record) -> Subscription:
    """Note that a subscription was heard of, and give it."""
    subscription = ledger.subscriptions[str(record.subscription)]
    subscription.last_seen_at_ms = record.at_ms
    if isinstance(record.body, Called):
        subscription.call = max(subscription.call, record.body.call)
    return subscription


def subscribed(ledger: QueueLedger, record: Record) -> None:
    """Begin a subscription, or replace what it asks for (R118)."""
    name, body = str(record.subscription), record.body_as(Subscribed)
    if name not in ledger.subscriptions:
        ledger.subscriptions[name] = Subscription(
            name=name, ack_mode="", max_backlog=0, subscribed_at_ms=record.at_ms, last_seen_at_ms=record.at_ms
        )
    subscription = ledger.subscriptions[name]
    subscription.ack_mode, subscription.max_backlog, subscription.filter = body.ack_mode, body.max_backlog, body.filter
    subscription.principal, subscription.entitlement, subscription.ends = body.principal, body.entitlement, body.ends
    _drop_matches(ledger)


def unsubscribed(ledger: QueueLedger, record: Record) -> None:
    """End a subscription."""
    name = str(record.subscription)
    if ledger.definition.at_most_once:
        for lease in ledger.leases_of(name):
            ledger.selection.order_keys.leave(lease.rows)
    del ledger.subscriptions[name]
    ledger.forget_leases(name)
    _drop_matches(ledger)


def attached(ledger: QueueLedger, record: Record) -> None:
    """Make a planner start its owner (P1)."""
    subscription = ledger.subscriptions[str(record.subscription)]
    subscription.incarnation, subscription.run_until = record.body_as(Attached).incarnation, record.body_as(Attached).until
    subscription.call = 0
    subscription.left = False
    subscription.run_granted = BitMap64()
    seen(ledger, record)


def left(ledger: QueueLedger, record: Record) -> None:
    """Note that its planner said goodbye."""
    seen(ledger, record).left = True


def _drop_matches(ledger: QueueLedger) -> None:
    """Forget what matches filters that no subscription has any more."""
    wanted = {text for subscription in ledger.subscriptions.values() for text in subscription.filters}
    for text in ledger.selection.matches.keys() - wanted:
        del ledger.selection.matches[text]


def failed(ledger: QueueLedger, record: Record) -> None:
    """Count messages on which an expression failed, as they were found when it was recorded."""
    ledger.failed_expressions += record.body_as(ExpressionFailed).messages
    ledger.failing.clear()
