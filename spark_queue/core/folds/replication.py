"""Records of replication change the values of messages, and thereby where they are (DESIGN 17.4 to 17.6)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.message_files.segment import EntryTraits
from spark_queue.core.records import RETURNED_CLAIM, ProxiedTransfer, Record, Replicated, Transferred, TransferRequested, Valued
from spark_queue.core.state.ledger import QueueLedger, reach
from spark_queue.core.state.lifecycle import Event, State
from spark_queue.core.state.ownership import MessageValue, Ownership, Request, Stage, value_of

#: Most deliveries and cancels that are taken over of a message, but for what the queue limits: a peer may say any number.
COUNTED_MOST = 1_000


def replicated(ledger: QueueLedger, record: Record) -> None:
    """Take over what another instance says of messages; what it says is greater than what was known."""
    rows, value, ownership = to_bitmap(record.ranges), value_of(record.body_as(Valued)), _ownership(ledger)
    older = ownership.before_life(rows, value.life)
    ownership.begin_life(rows, value.life)
    ledger.removed_counts.subtract(ledger.dead_letters.take_back(rows & ledger.rows[State.DEAD]))
    _forget_counts(ledger, older)
    _let_letters_in(ledger, rows - ledger.entered, at_ms=record.at_ms)
    if value.stage == Stage.PRESENT:
        _present(ledger, record, rows, value, older=older)
    else:
        _ended(ledger, record, rows, value)


def transferred(ledger: QueueLedger, record: Record) -> None:
    """Give messages away to another instance, or claim them for this one (R105, R109)."""
    rows, value, ownership = to_bitmap(record.ranges), value_of(record.body_as(Valued)), _ownership(ledger)
    if record.body_as(Transferred).awaits_look:
        ownership.claim(rows, term=value.term)
        return
    if value.owner == ownership.instance:
        ownership.claimed += len(rows)
    elif record.reason != RETURNED_CLAIM:
        ownership.given_to[value.owner] += len(rows)
        reach(ledger, rows, record.at_ms)
        # No lease may take up what is somebody else's.
        ledger.drop_recoverable(rows, but=None)
    ledger.give(rows, term=value.term, owner=value.owner)


def transfer_requested(ledger: QueueLedger, record: Record) -> None:
    """Note what was asked of an owner (R104), for this instance or for another whose request is passed on."""
    ownership, body, rows = _ownership(ledger), record.body_as(TransferRequested), to_bitmap(record.ranges)
    limit, at_ms = body.limit, record.at_ms
    before = ownership.requests.get(body.owner)
    is_repeat = before is not None and before.rows.intersect(rows & ledger.rows[State.REMOTE])
    request = Request(rows, limit, at_ms, body.life, since_ms=before.since_ms if before is not None and is_repeat else at_ms)
    if body.requester == ownership.instance:
        ownership.requests[body.owner] = request
    else:
        ownership.pass_on(body.requester, body.owner, request)


def proxied_transfer(ledger: QueueLedger, record: Record) -> None:
    """Let messages be claimed whose owner cannot be reached, or no more (R108)."""
    claims_from, body = _ownership(ledger).claims_from, record.body_as(ProxiedTransfer)
    if body.owner is None:
        claims_from.clear()
    elif body.on:
        claims_from.add(body.owner)
    else:
        claims_from.discard(body.owner)


def claim_confirmed(ledger: QueueLedger, record: Record) -> None:
    """Let what was claimed be granted: its owner was silent still (R110)."""
    rows, ownership = to_bitmap(record.ranges), _ownership(ledger)
    ownership.claimed += len(rows)
    ownership.end_claims(rows)
    ledger.take_in(rows)


def _ownership(ledger: QueueLedger) -> Ownership:
    assert ledger.is_replicated, "records of replication are about replicated queues"
    return ledger.ownership


def _let_letters_in(ledger: QueueLedger, letters: BitMap64, *, at_ms: int) -> None:
    """Let dead letters into their dead-letter queue that another instance has let in.

    Of a queue that has messages published to it only what retention let go has not entered: it is taken in by what ends it.
    """
    if letters and ledger.definition.underlying_topic is None:
        ledger.enter(EntryTraits(rows=letters, expires={}))
        # Its age here counts from now, as where it died.
        ledger.begun.replace(letters, at_ms)


def _forget_counts(ledger: QueueLedger, rows: BitMap64) -> None:
    """Forget what was counted of messages that are over, or begin anew; no lease may take them up."""
    ledger.delivered.forget(rows)
    ledger.cancelled.forget(rows)
    ledger.drop_recoverable(rows, but=None)


def _present(ledger: QueueLedger, record: Record, rows: BitMap64, value: MessageValue, *, older: BitMap64) -> None:
    ownership, body = _ownership(ledger), record.body_as(Replicated)
    ledger.delivered.raise_to(min(body.deliveries or 0, max(COUNTED_MOST, ledger.definition.max_deliveries)), rows)
    ledger.cancelled.raise_to(min(body.cancels or 0, max(COUNTED_MOST, ledger.definition.max_cancels)), rows)
    mine = value.owner == ownership.instance
    # Counted by what the record says alone: what retention let go is in no state when the log is folded again.
    if mine and rows - older:
        ownership.came_from[body.peer] += len(rows - older)
    # A lease of an earlier life is over; of this life it stays open until its end.
    back = (older - ledger.rows[State.REMOTE]) | (rows & (ledger.rows[State.DEAD] | ledger.rows[State.REMOVED]))
    ownership.own(rows, term=value.term, owner=value.owner)
    ledger.forget_delays(older)
    ledger.move(back, Event.OWNED if mine else Event.DISOWNED)
    if back:
        # Its age counts from now, as that of whatever is redriven.
        ledger.expires.replace(back, None)
        ledger.begun.replace(back, record.at_ms)
    ledger.give(rows, term=value.term, owner=value.owner)


def _ended(ledger: QueueLedger, record: Record, rows: BitMap64, value: MessageValue) -> None:
    ownership, dead = _ownership(ledger), value.stage == Stage.DEAD
    stays = rows & ledger.rows[State.DEAD] if dead else rows & ledger.rows[State.REMOVED]
    ledger.move(rows - stays, Event.DEAD_LETTERED if dead else Event.REMOVED)
    ledger.forget_gone(record.at_ms)
    _forget_counts(ledger, rows)
    if dead:
        ownership.own(rows, term=value.term, owner=value.owner)
        ledger.dead_letters.add(record, rows)
    else:
        ownership.disown(rows)
    if not record.body_as(Replicated).settled_in:
        ledger.removed_counts[str(record.reason)] += len(rows)
