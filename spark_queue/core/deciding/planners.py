"""The tie between a subscription and the process that plans it: its start, its principal, its end (R12, R47, R118)."""

from __future__ import annotations

from msgspec import structs
from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.deciding.settlement import end_lease
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import HIDDEN, Return
from spark_queue.core.state.in_doubt import in_doubt, refusal
from spark_queue.core.state.subscription import Subscription


def hand_to_caller(work: UnitOfWork, known: Subscription | None) -> Subscription | None:
    """Return a subscription as the attaching caller may have it.

    One of before there were principals, or of one that is gone, may hold messages hidden from the new one: it ends, and begins
    anew.
    """
    if known is None or work.caller is None or known.principal == work.caller.principal or not work.row_filters():
        return known
    end_subscription(work, known, reason="principal")
    return None


def renew_entitlements(work: UnitOfWork) -> None:
    """Bind subscriptions to the rights that new definitions give their principals; leased messages stay leased."""
    definitions, queue = work.state.definitions, work.ledger.definition.name
    if work.ledger.definition.underlying_topic is None:
        # No filter is evaluated in a dead-letter queue: a principal that has one is given nothing there.
        return
    for each in list(work.ledger.subscriptions.values()):
        entitlement = definitions.row_filters(each.principal, queue)
        if each.principal is not None and entitlement != each.entitlement:
            work.emit(structs.replace(each.asked, entitlement=entitlement), subscription=each.name)
            if queue in work.state.troubles:
                # A file that the filter would have to read is not whole.
                return
            _let_go_of_hidden_barriers(work, each)


def _let_go_of_hidden_barriers(work: UnitOfWork, subscription: Subscription) -> None:
    """Withdraw released barriers that a subscription's principal may not see any more, so that messages behind them go on."""
    lease = work.ledger.open_lease(subscription)
    seen = waiting = subscription.barriers - (BitMap64() if lease is None else lease.rows)
    for text in subscription.entitlement:
        seen = work.matching(text, seen)
    if hidden := waiting - seen:
        received = records.BarrierReceived(deliveries=subscription.barrier_deliveries)
        work.emit(received, hidden, subscription=subscription.name, reason=HIDDEN)


def end_subscription(work: UnitOfWork, subscription: Subscription, *, reason: str) -> None:
    """End a subscription; its messages return. Attempts in doubt have to be decided first (R123)."""
    for lease in in_doubt(work.ledger, subscription.name):
        raise refusal(work.ledger, lease, "ending the subscription")
    for lease in work.ledger.leases_of(subscription.name):
        end_lease(work, lease, Return.UNSUBSCRIBED)
    work.emit(records.Unsubscribed(), subscription=subscription.name, reason=reason)
