"""How records change the state of one queue: the only way in (DESIGN 5). One function for each kind."""

from __future__ import annotations

from collections.abc import Callable

from spark_queue.core.records import Kind, Record
from spark_queue.core.state.folds import journal, queues
from spark_queue.core.state.ledger import QueueLedger

_FOLDS: dict[str, Callable[[QueueLedger, Record], None]] = {
    Kind.SUBSCRIBED: queues.subscribed,
    Kind.UNSUBSCRIBED: queues.unsubscribed,
    Kind.ATTACHED: queues.attached,
    Kind.LEFT: queues.left,
    Kind.GRANTED: queues.granted,
    Kind.RESUMED: queues.resumed,
    Kind.RENEWED: queues.renewed,
    Kind.CLAIMED: queues.claimed,
    Kind.LAPSED: queues.lapsed,
    Kind.PREPARED: queues.prepared,
    Kind.LANDED: queues.landed,
    Kind.FENCED: queues.fenced,
    Kind.SINK_UNREADABLE: queues.sink_unreadable,
    Kind.OUTCOMES: queues.outcomes,
    Kind.PROVEN: queues.proven,
    Kind.RETURNED: queues.returned,
    Kind.REMOVED: queues.removed,
    Kind.DEAD_LETTERED: queues.dead_lettered,
    Kind.DEFERRED: queues.deferred,
    Kind.REDRIVEN: queues.redriven,
    Kind.PAUSED: queues.paused,
    Kind.UNPAUSED: queues.unpaused,
    Kind.BARRIERS_DECIDED: queues.barriers_decided,
    Kind.BARRIER_RELEASED: queues.released,
    Kind.BARRIER_RECEIVED: queues.received,
    Kind.EXPRESSION_FAILED: queues.failed,
    Kind.REPLICATED: journal.replicated,
    Kind.TRANSFERRED: journal.transferred,
    Kind.TRANSFER_REQUESTED: journal.transfer_requested,
    Kind.PROXIED_TRANSFER: journal.proxied_transfer,
    Kind.CLAIM_CONFIRMED: journal.claim_confirmed,
}


def fold(ledger: QueueLedger, record: Record) -> None:
    """Apply one record of a queue to its ledger; a kind that is unknown here changes nothing."""
    apply = _FOLDS.get(record.kind)
    if apply is not None:
        apply(ledger, record)
