"""How records change the state of a journal and its queues: the only way in (DESIGN 5). One function for each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_queue.core.folds import (
    attempts,
    barriers,
    definitions,
    endings,
    leases,
    pauses,
    peers,
    removals,
    replication,
    runs,
    subscriptions,
)
from spark_queue.core.folds.entering import EnteringAhead
from spark_queue.core.records import Entered, EpochClaimed, JournalCreated, Kind, Named, Record, SetAside, Unread, refuse_unknown
from spark_queue.core.state.faults import set_aside
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger, fill

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
    Kind.PREPARED: attempts.prepared,
    Kind.LANDED: attempts.landed,
    Kind.FENCED: attempts.fenced,
    Kind.SINK_UNREADABLE: attempts.sink_unreadable,
    Kind.OUTCOMES: runs.outcomes,
    Kind.REFUSED: runs.refused,
    Kind.PROVEN: runs.proven,
    Kind.RETURNED: endings.returned,
    Kind.REMOVED: removals.removed,
    Kind.DEAD_LETTERED: endings.dead_lettered,
    Kind.DEFERRED: endings.deferred,
    Kind.REDRIVEN: endings.redriven,
    Kind.PAUSED: pauses.paused,
    Kind.UNPAUSED: pauses.unpaused,
    Kind.BARRIERS_DECIDED: barriers.barriers_decided,
    Kind.BARRIER_RELEASED: barriers.released,
    Kind.BARRIER_RECEIVED: barriers.received,
    Kind.EXPRESSION_FAILED: subscriptions.failed,
    Kind.REPLICATED: replication.replicated,
    Kind.TRANSFERRED: replication.transferred,
    Kind.TRANSFER_REQUESTED: replication.transfer_requested,
    Kind.PROXIED_TRANSFER: replication.proxied_transfer,
    Kind.CLAIM_CONFIRMED: replication.claim_confirmed,
}


def fold_all(state: JournalState, records: Sequence[Record]) -> None:
    """Apply a whole log, or the rest of one, in order."""
    state.foresee(records)
    ahead = EnteringAhead(state, records)
    for number, record in enumerate(records):
        ahead.before(number)
        fold(state, record)
    state.foresee(())


def fold(state: JournalState, record: Record) -> None:
    """Apply one record."""
    match record.kind:
        case Kind.JOURNAL_CREATED:
            state.journal_id, state.created_at_ms = record.body_as(JournalCreated).journal, record.at_ms
        case Kind.EPOCH_CLAIMED:
            state.epoch, state.claim = record.epoch, record.body_as(EpochClaimed)
        case Kind.DEFINITIONS_APPLIED:
            definitions.applied(state, record)
        case Kind.ENTERED | Kind.NAMED | Kind.FOREIGN | Kind.REPEATED | Kind.MOVED | Kind.RETIRED:
            _of_files(state, record)
        case Kind.FOLLOWED | Kind.PASSED | Kind.STOPPED:
            _of_files(state, record)
        case Kind.DECIDED:
            definitions.decided(state, record)
        case Kind.PULLED | Kind.PEER_CHANGED | Kind.RESTORED | Kind.RETURNING:
            peers.fold(state, record)
        case Kind.SET_ASIDE:
            _set_aside_by_record(state, record)
        case _ if isinstance(record.body, Unread):
            refuse_unknown(record, path=state.journal_id)
        case _:
            # Records of a queue that was dropped since, or is set aside, stay in the log and change nothing.
            if record.queue in state.queues:
                _of_queue(state, record)
    for ledger in state.filled_by(record):
        with state.guard(ledger.definition.name):
            fill(ledger, record.at_ms)
    state.requests.note(record)
    state.next_record, state.last_at_ms = record.record + 1, max(state.last_at_ms, record.at_ms)


def fold_into(ledger: QueueLedger, record: Record) -> None:
    """Apply one record of a queue to its ledger; a kind that is unknown here changes nothing."""
    apply = _FOLDS.get(record.kind)
    if apply is not None:
        apply(ledger, record)


def _of_queue(state: JournalState, record: Record) -> None:
    """Apply a record of a queue that stands."""
    queue = str(record.queue)
    with state.guard(queue):
        if record.kind != Kind.SUBSCRIBED or state.match_new_filters(record):
            fold_into(state.queues[queue], record)


def _set_aside_by_record(state: JournalState, record: Record) -> None:
    """Go on without a queue until somebody has it revived; the log goes on from what was there before the fault.

    One that was revived since is over, and says nothing of what raised in this fold. One of a queue that was dropped counts
    once the queue is put back: what raised before, this fold has not seen.
    """
    queue = str(record.queue)
    if not state.foresight.is_revived(queue, after=record.record):
        state.faults.pop(queue, None)
        state.queues.pop(queue, None)
        state.unanswered.pop(queue, None)
        state.troubles[queue] = set_aside(queue, f"{record.body_as(SetAside).error}.")
        state.set_aside_ms[queue] = record.at_ms


def _of_files(state: JournalState, record: Record) -> None:
    message_type = state.message_types[str(record.message_type)]
    message_type.fold(record)
    if isinstance(record.body, Entered | Named):
        state.instances.update(record.body.instances)
    if isinstance(record.body, Entered):
        segment = message_type.segments[-1]
        ledgers = state.entered_queues(segment.message_type)
        state.enter(segment, ledgers, barriers=segment.barriers)
        state.note_clashes(ledgers, segment)
