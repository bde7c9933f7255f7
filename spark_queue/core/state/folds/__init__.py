"""How records change the state of one queue: the only way in (DESIGN 5). One function for each kind."""

from __future__ import annotations

from collections.abc import Callable

from spark_queue.core.records import Kind, Record
from spark_queue.core.state.folds import barriers, endings, expressions, leases, pauses, replication, subscriptions
from spark_queue.core.state.ledger import QueueLedger

_FOLDS: dict[str, Callable[[QueueLedger, Record], None]] = {
    Kind.SUBSCRIBED: subscriptions.subscribed,
    Kind.UNSUBSCRIBED: subscriptions.unsubscribed,
    Kind.ATTACHED: subscriptions.attached,
    Kind.LEFT: subscriptions.left,
    Kind.GRANTED: leases.granted,
    Kind.RESUMED: leases.resumed,
    Kind.RENEWED: leases.renewed,
    Kind.CLAIMED: leases.claimed,
    Kind.LAPSED: leases.lapsed,
    Kind.OUTCOMES: leases.outcomes,
    Kind.PROVEN: leases.proven,
    Kind.RETURNED: endings.returned,
    Kind.REMOVED: endings.removed,
    Kind.DEAD_LETTERED: endings.dead_lettered,
    Kind.DEFERRED: endings.deferred,
    Kind.REDRIVEN: endings.redriven,
    Kind.PAUSED: pauses.paused,
    Kind.UNPAUSED: pauses.unpaused,
    Kind.BARRIER_RELEASED: barriers.released,
    Kind.BARRIER_RECEIVED: barriers.received,
    Kind.EXPRESSION_FAILED: expressions.failed,
    Kind.REPLICATED: replication.replicated,
    Kind.TRANSFERRED: replication.transferred,
    Kind.TRANSFER_REQUESTED: replication.transfer_requested,
    Kind.PROXIED_TRANSFER: replication.proxied_transfer,
}


def fold(ledger: QueueLedger, record: Record) -> None:
    """Apply one record of a queue to its ledger; a kind that is unknown here changes nothing."""
    apply = _FOLDS.get(record.kind)
    if apply is not None:
        apply(ledger, record)
