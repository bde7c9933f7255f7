"""Granting: which messages a subscription is leased next, and how many (R22 to R31, R47 to R49)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.lease import Lease, Subscription
from spark_queue.core.lifecycle import State
from spark_queue.core.ranges import below
from spark_queue.core.records import Kind, Pause, Removal
from spark_queue.core.session import Session
from spark_queue.core.settlement import remove
from spark_queue.core.turn import Turn


def grant(turn: Turn, subscription: Subscription, session: Session, *, call: int, limit: int) -> Lease | None:
    """Lease the next messages to a subscription; None when there is nothing for it now (R47, R48).

    Parameters
    ----------
    limit : int
        Most messages that the caller takes.
    """
    ledger, queue = turn.ledger, turn.ledger.definition
    if Pause.USER in ledger.pauses:
        return None
    rows = ledger.selection.first(grantable(turn, subscription), min(limit, room(turn, subscription)))
    if not rows:
        return None
    number = ledger.next_lease
    turn.emit(
        Kind.GRANTED,
        rows,
        subscription=subscription.name,
        lease=number,
        due_at_ms=turn.now_ms + queue.lease_period_ms,
        detail={"incarnation": list(session.incarnation), "call": call, "limit": limit},
    )
    lease = ledger.leases[number]
    session.granted = session.unasked = number
    if queue.at_most_once:
        remove(turn, rows, Removal.DELIVERED, lease=lease)
    return lease


def grantable(turn: Turn, subscription: Subscription) -> BitMap64:
    """Give the messages that may be leased to a subscription now, whatever room it has."""
    rows = turn.ledger.rows[State.AVAILABLE]
    due = turn.ledger.due(turn.now_ms)
    if due:
        rows = rows | due
    if subscription.run_until is not None:
        rows = below(rows, subscription.run_until) - subscription.run_granted
    return turn.ledger.selection.candidates(rows, text=subscription.filter, leased=turn.ledger.rows[State.LEASED])


def room(turn: Turn, subscription: Subscription) -> int:
    """Give how many more messages the backlogs and a running isolation allow (R24, R31)."""
    ledger, queue = turn.ledger, turn.ledger.definition
    limits = [subscription.max_backlog - ledger.backlog(subscription.name)]
    if queue.max_per_subscription_backlog:
        limits.append(queue.max_per_subscription_backlog - ledger.backlog(subscription.name))
    if queue.max_backlog:
        limits.append(queue.max_backlog - sum(ledger.backlog(name) for name in ledger.subscriptions))
    if subscription.isolation_limit is not None:
        limits.append(subscription.isolation_limit)
    return max(0, min(limits))
