"""Folds of records about the journal, its definitions (DESIGN 9, 15.7) and its peers (DESIGN 17).

Records of replication change the values of messages, and thereby where they are (DESIGN 17.4 to 17.6).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import WITHHOLDING, Definitions, Disagreement, QueueDefinition
from spark_queue.core.definitions.keys import LOCAL
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.origins import Membership
from spark_queue.core.message_files.segment import EntryTraits, Segment
from spark_queue.core.records import RETURNED_CLAIM, Kind, PeerChange, Ranges, Record
from spark_queue.core.state.alarm import Alarm
from spark_queue.core.state.lease import Selection
from spark_queue.core.state.ledger import QueueLedger, reach, shrink
from spark_queue.core.state.lifecycle import Event, State
from spark_queue.core.state.ownership import (
    MessageValue,
    Ownership,
    Request,
    Returning,
    Stage,
    Watermark,
    renew_origins,
    restoration_of,
)
from spark_queue.errors import JournalError

if TYPE_CHECKING:
    from spark_queue.core.state.journal_state import JournalState


def applied(state: JournalState, record: Record) -> None:
    """Replace the whole set of definitions."""
    before, state.definitions = state.definitions, parsing.parse_recorded(record.detail["definitions"], path=state.journal_id)
    resets: Mapping[str, int] = record.detail["resets"]
    state.foresight.begin(resets)
    for name in state.definitions.message_types:
        state.message_types.setdefault(name, MessageTypeState(created_at_ms=state.created_at_ms))
    renew_origins(state.message_types, state.peer_changes.restorations)
    # What was set aside before it was left is not among them: it stays so.
    goes_on = {name: state.left[name] for name in record.detail.get("goes_on", ()) if name in state.left}
    state.queues |= goes_on
    fresh = [*goes_on.values()]
    for queue in state.definitions.queues.values():
        state.left.pop(queue.name, None)
        if queue.name in state.troubles:
            continue
        old = state.queues.get(queue.name)
        if old is None or queue.name in resets:
            state.queues[queue.name] = _begun(state, queue, old, start=resets.get(queue.name, 0))
            fresh.append(state.queues[queue.name])
            continue
        with state.guard(queue.name):
            _alter(state, old, queue)
            if before.source_of(queue.name) != state.definitions.source_of(queue.name):
                old.forget_letters()
    for name in [name for name in state.queues if name not in state.definitions.queues]:
        dropped = state.queues.pop(name)
        state.lease_numbers[name], state.attempts[name] = dropped.next_lease, dropped.attempts
        if dropped.ownership is not None:
            state.left[name] = dropped
    replicate(state)
    pull_from_the_start(state, before)
    is_told = record.detail.get("told", False)
    _enter_past(state, [each for each in fresh if each.ownership is None or not is_told], record.detail.get("barriers", {}))
    for ledger in fresh if is_told else ():
        if ledger.ownership is not None:
            with state.guard(ledger.definition.name):
                _enter_told(state, ledger)


def _alter(state: JournalState, ledger: QueueLedger, queue: QueueDefinition) -> None:
    """Go on with a queue by another definition."""
    known, ledger.definition = ledger.definition, queue
    if (known.priority, known.order_key) != (queue.priority, queue.order_key):
        _select_anew(state, ledger)
    if known.target_queue_depth != queue.target_queue_depth:
        shrink(ledger)


def _begun(state: JournalState, queue: QueueDefinition, old: QueueLedger | None, *, start: int) -> QueueLedger:
    """Return a queue that begins, or begins anew: lease numbers are never reused, subscriptions and pauses outlive it (15.6)."""
    ledger = QueueLedger(queue, start=start)
    ledger.retired = state.foresight.retired(queue.message_type)
    ledger.next_lease = state.lease_numbers.get(queue.name, 1)
    ledger.attempts = state.attempts.get(queue.name, {})
    if old is not None:
        ledger.next_lease, ledger.attempts = old.next_lease, old.attempts
        ledger.subscriptions = old.subscriptions
        ledger.paused = old.paused
        # Of a queue of another message type the others could not be evaluated.
        known = old.subscriptions.values()
        asked = {text for each in known for text in (each.filter, *state.definitions.row_filters(each.principal, queue.name))}
        ledger.selection.matches = {text: BitMap64() for text in old.selection.matches if text in asked}
        ledger.forget_batches()
    return ledger


def _select_anew(state: JournalState, ledger: QueueLedger) -> None:
    """Compute priorities and keys again of everything that is in a queue, by its new definition.

    What has entered stays whatever the filter and the topic say by now, so nobody asks them again.
    """
    standing, matches = ledger.standing, ledger.selection.matches
    ledger.selection = Selection()
    for everything in state.traits_of_any(ledger, standing):
        traits = replace(everything.among(standing), barriers=ledger.barriers)
        ledger.selection.add(traits.without_keys_of_barriers())
        ledger.failing |= traits.failed
    if ledger.definition.name in state.troubles:
        return
    ledger.selection.matches = matches
    elsewhere = (ledger.rows[state] for state in (State.DEAD, State.REMOVED, State.REMOTE))
    ledger.selection.order_keys.leave(BitMap64.union(*elsewhere))


def _enter_past(state: JournalState, ledgers: Collection[QueueLedger], barriers: Mapping[str, Ranges]) -> None:
    """Let the messages that were there before into queues that begin, with the barriers that were found then (R75)."""
    found = {name: to_bitmap(ranges) for name, ranges in barriers.items()}
    for name, message_type in state.message_types.items():
        mine = [ledger for ledger in ledgers if ledger.definition.message_type == name and ledger.definition.underlying_topic]
        for segment in message_type.segments if mine else ():
            here = to_bitmap([(segment.first, segment.until)])
            of_it = {queue: tuple(to_ranges(rows & here)) for queue, rows in found.items()}
            state.enter(segment, [each for each in mine if each.definition.name not in state.troubles], barriers=of_it)


def _enter_told(state: JournalState, ledger: QueueLedger) -> None:
    """Let into a replicated queue that begins what was said of messages before; of those of this instance records follow."""
    told = state.message_types[ledger.definition.message_type].membership(ledger.definition.name)
    for owner, rows in [*told.members.items(), (None, told.barriers)]:
        state.enter_decided(ledger, rows, owner=owner)


def decided(state: JournalState, record: Record) -> None:
    """Note what is said of messages for a replicated queue, once, and let them in (R129)."""
    known, queue = state.message_types[str(record.message_type)], str(record.queue)
    rows, owner, is_barrier = to_bitmap(record.ranges), record.detail.get("owner"), record.detail.get("barrier", False)
    known.told.setdefault(queue, Membership()).add(rows, owner=owner, is_barrier=is_barrier)
    ledger = state.queues.get(queue)
    if ledger is None or ledger.ownership is None or ledger.definition.message_type != record.message_type:
        return
    if owner is not None or is_barrier:
        with state.guard(queue):
            state.enter_decided(ledger, rows, owner=owner)


def fold(state: JournalState, record: Record) -> None:
    """Apply a record about a peer."""
    match record.kind, record.reason:
        case Kind.PULLED, _:
            _pulled(state, record)
        case Kind.PEER_CHANGED, PeerChange.SKIPPED:
            state.peer_changes.skips.add(record.detail["peer"])
        case Kind.PEER_CHANGED, PeerChange.RESET:
            state.pulled.pop(record.detail["peer"], None)
        case Kind.PEER_CHANGED, PeerChange.FORGOTTEN:
            state.peer_changes.forgotten.add(record.detail["peer"])
            for ledger in state.queues.values():
                if ledger.ownership is not None:
                    ledger.ownership.requests.pop(record.detail["peer"], None)
        case Kind.PEER_CHANGED, PeerChange.TROUBLE:
            peer, error = record.detail["peer"], record.detail["error"]
            state.peer_troubles.pop(peer, None)
            if error:
                state.peer_troubles[peer] = Alarm(error=error.removesuffix("."), since_ms=record.at_ms)
        case Kind.RESTORED, _:
            _restored(state, record)
        case Kind.RETURNING, _:
            detail, began = record.detail, record.at_ms if state.returning is None else state.returning.since_ms
            without, queues = frozenset(detail.get("without", ())), frozenset(detail.get("queues", ()))
            state.returning = Returning(began, detail.get("joins", False), without, queues) if detail["on"] else None


def _restored(state: JournalState, record: Record) -> None:
    """Let what is published here have another origin; what had the earlier ones may come back from peers."""
    state.peer_changes.restorations.append(restoration_of(record))
    instance = str(state.definitions.journal.instance)
    state.instances |= dict.fromkeys([state.journal_id, *(each.origin for each in state.peer_changes.restorations)], instance)
    renew_origins(state.message_types, state.peer_changes.restorations)


def _pulled(state: JournalState, record: Record) -> None:
    """Note how far a peer is pulled."""
    peer, watermark, detail = str(record.detail["peer"]), watermark_of(record), record.detail
    before = state.pulled.get(peer, watermark)
    gaps_after = detail.get("gaps_after", before.gaps_after)
    if watermark.record < 0:
        # It is read again, and what it had let go until then was told.
        gaps_after = max(gaps_after, before.record)
    missed = before.missed.union(detail.get("missed", ())) if watermark.record >= 0 else frozenset()
    state.pulled[peer] = replace(watermark, gaps_after=gaps_after, missed=missed)
    if "gaps_after" in detail:
        state.peer_changes.skips.discard(peer)
    state.peer_changes.forgotten.discard(peer)
    state.instances[watermark.journal] = peer
    if "disagreements" in detail:
        since_ms = {each: each.since_ms for each in state.disagreements.get(peer, ())}
        found = [Disagreement(*each) for each in detail["disagreements"]]
        state.disagreements[peer] = [replace(each, since_ms=since_ms.get(each, record.at_ms)) for each in found]


def watermark_of(record: Record) -> Watermark:
    """Return how far a journal is pulled, as a `pulled` record says it."""
    detail = record.detail
    return Watermark(detail["journal"], detail["number"], detail["digest"], detail.get("origin_uuid", ""))


def give_to_first_owners(state: JournalState, ledger: QueueLedger, rows: BitMap64) -> None:
    """Let messages of a replicated queue belong to whom they belong to at first (R102)."""
    if ledger.ownership is None:
        return
    known = state.message_types[ledger.definition.message_type]
    for owner, told in known.membership(ledger.definition.name).members.items():
        part = rows & told
        ledger.give(part, term=0, owner=owner)
        rows = rows - part
    if ledger.definition.initial_owner is not None:
        ledger.give(rows, term=0, owner=ledger.definition.initial_owner)
        return
    for origin, from_there in known.origins.pulled.items():
        part = rows & from_there
        if part:
            ledger.give(part, term=0, owner=state.instances[origin])
    for origin, named in known.origins.named(rows):
        # It was published to several, and the greater value is true.
        owner = state.instances[origin]
        lesser = (part for _, known, part in ledger.ownership.by_owner(named) if known < owner)
        ledger.give(BitMap64.union(BitMap64(), *lesser), term=0, owner=owner)


def clashed(state: JournalState, ledgers: Iterable[QueueLedger], segment: Segment) -> None:
    """Note the messages of a file that have a number which another message of their publisher has, as an alarm of their queues."""
    for ledger in ledgers if segment.clashes else ():
        with state.guard(ledger.definition.name):
            _clashed(ledger, segment)


def _clashed(ledger: QueueLedger, segment: Segment) -> None:
    for row, rows, publisher, sequence in segment.clashes:
        part = ledger.entered & to_bitmap([(segment.first + row, segment.first + row + rows)])
        if part:
            ledger.clashing |= part
            clash = JournalError("PUBLISHER_CLASH", publisher=publisher, sequence=sequence, bookmark=part.min())
            ledger.clash = Alarm(error=str(clash).removesuffix("."), since_ms=segment.entered_at_ms)


def replicate(state: JournalState) -> None:
    """Let queues know whose their messages are, from when they are pulled.

    What is known stays known while a queue is pulled from nobody: whose a message is would be forgotten, and in which life it
    ended. Only a queue that is defined as this instance's alone takes all of its messages. Dead-letter queues go with their source.
    """
    sources = {name: state.definitions.source_of(name) for name in state.queues}
    for name in sorted(state.queues, key=lambda name: sources[name] is not None):
        ledger, source = state.queues[name], state.queues.get(sources[name] or "")
        known = ledger.ownership is not None and ledger.definition.ownership != LOCAL
        known = known if source is None else source.ownership is not None
        with state.guard(name):
            _replicate(state, ledger, is_replicated=known or state.definitions.is_replicated(name))


def _replicate(state: JournalState, ledger: QueueLedger, *, is_replicated: bool) -> None:
    instance = state.definitions.journal.instance
    if not is_replicated:
        ledger.move(ledger.rows[State.REMOTE].copy(), Event.OWNED)
        ledger.ownership = None
    elif ledger.ownership is None and instance is not None:
        ledger.ownership = Ownership(instance)
        # A letter belongs to who dead-lettered it, and so does what is dead.
        if ledger.definition.underlying_topic is not None:
            standing = ledger.entered - ledger.rows[State.REMOVED] - ledger.rows[State.DEAD] - ledger.barriers
            give_to_first_owners(state, ledger, standing)


def pull_from_the_start(state: JournalState, before: Definitions) -> None:
    """Let the logs of peers be read again of which something was passed over that may be wanted now.

    That is where more is pulled than before, or a queue did not fit, or the columns of a message type changed: messages that
    did not fit may do so now. Taking news over twice changes nothing (DESIGN 17.3).
    """
    has_other_columns = any(
        new.columns != before.message_types[name].columns
        for name, new in state.definitions.message_types.items()
        if name in before.message_types
    )
    peers = state.definitions.peers
    state.disagreements = {
        name: [each for each in known if each.queue in peers[name].queues]
        for name, known in state.disagreements.items()
        if name in peers
    }
    state.peer_troubles = {name: trouble for name, trouble in state.peer_troubles.items() if name in peers}
    for name, watermark in state.pulled.items():
        old, new = before.peers.get(name), peers.get(name)
        if new is None:
            continue
        more = old is None or has_other_columns or set(new.topics) - set(old.topics) or set(new.queues) - set(old.queues)
        if more or any(each.rule in WITHHOLDING for each in state.disagreements.get(name, ())):
            # Of what is pulled from now on nothing was told until here.
            gaps_after = max(watermark.gaps_after, watermark.record)
            state.pulled[name] = replace(watermark, record=-1, digest="", gaps_after=gaps_after)


#: Most deliveries and cancels that are taken over of a message, but for what the queue limits: a peer may say any number.
COUNTED_MOST = 1_000


def value_of(record: Record) -> MessageValue:
    """Return the value that a `replicated` or `transferred` record gives to its messages."""
    detail = record.detail
    return MessageValue(
        detail.get("life", 0), Stage(detail.get("stage", Stage.PRESENT)), detail.get("term", 0), detail.get("owner", "")
    )


def replicated(ledger: QueueLedger, record: Record) -> None:
    """Take over what another instance says of messages; what it says is greater than what was known."""
    rows, value, ownership = to_bitmap(record.ranges), value_of(record), _ownership(ledger)
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
    rows, value, ownership = to_bitmap(record.ranges), value_of(record), _ownership(ledger)
    if record.detail.get("awaits_look"):
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
    ownership, requester, owner = _ownership(ledger), record.detail["requester"], record.detail["owner"]
    rows = to_bitmap(record.ranges)
    limit, life, at_ms = record.detail.get("limit", len(rows)), record.detail.get("life", 0), record.at_ms
    before = ownership.requests.get(owner)
    is_repeat = before is not None and before.rows.intersect(rows & ledger.rows[State.REMOTE])
    request = Request(rows, limit, at_ms, life, since_ms=before.since_ms if before is not None and is_repeat else at_ms)
    if requester == ownership.instance:
        ownership.requests[owner] = request
    else:
        ownership.pass_on(requester, owner, request)


def proxied_transfer(ledger: QueueLedger, record: Record) -> None:
    """Let messages be claimed whose owner cannot be reached, or no more (R108)."""
    claims_from, owner = _ownership(ledger).claims_from, record.detail.get("owner", "")
    if record.detail["on"]:
        claims_from.add(owner)
    elif owner:
        claims_from.discard(owner)
    else:
        claims_from.clear()


def claim_confirmed(ledger: QueueLedger, record: Record) -> None:
    """Let what was claimed be granted: its owner was silent still (R110)."""
    rows, ownership = to_bitmap(record.ranges), _ownership(ledger)
    ownership.claimed += len(rows)
    ownership.end_claims(rows)
    ledger.take_in(rows)


def _ownership(ledger: QueueLedger) -> Ownership:
    assert ledger.ownership is not None, "records of replication are about replicated queues"
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
    ownership = _ownership(ledger)
    ledger.delivered.raise_to(min(record.detail.get("deliveries", 0), max(COUNTED_MOST, ledger.definition.max_deliveries)), rows)
    ledger.cancelled.raise_to(min(record.detail.get("cancels", 0), max(COUNTED_MOST, ledger.definition.max_cancels)), rows)
    mine = value.owner == ownership.instance
    # Counted by what the record says alone: what retention let go is in no state when the log is folded again.
    if mine and rows - older:
        ownership.came_from[record.detail["peer"]] += len(rows - older)
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
    if not record.detail.get("settled_in"):
        ledger.removed_counts[str(record.reason)] += len(rows)
