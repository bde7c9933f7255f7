"""Folds of records about peers, and of what enters from them (DESIGN 17)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spark_queue.core import records
from spark_queue.core.definitions.definition import WITHHOLDING, Definitions, Disagreement
from spark_queue.core.definitions.keys import LOCAL
from spark_queue.core.records import Kind, PeerChange, PeerChanged, Pulled, Record
from spark_queue.core.state.alarm import Alarm
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import Event, State
from spark_queue.core.state.ownership import Ownership, Watermark
from spark_queue.core.state.peer_changes import Returning, renew_origins, restoration_of

if TYPE_CHECKING:
    from spark_queue.core.state.journal_state import JournalState


def fold(state: JournalState, record: Record) -> None:
    """Apply a record about a peer."""
    match record.kind, record.reason:
        case Kind.PULLED, _:
            _pulled(state, record)
        case Kind.PEER_CHANGED, PeerChange.SKIPPED:
            state.peer_changes.skips.add(record.body_as(PeerChanged).peer)
        case Kind.PEER_CHANGED, PeerChange.RESET:
            state.pulled.pop(record.body_as(PeerChanged).peer, None)
        case Kind.PEER_CHANGED, PeerChange.FORGOTTEN:
            state.peer_changes.forgotten.add(record.body_as(PeerChanged).peer)
            for ledger in state.queues.values():
                ledger.ownership.requests.pop(record.body_as(PeerChanged).peer, None)
        case Kind.PEER_CHANGED, PeerChange.TROUBLE:
            changed = record.body_as(PeerChanged)
            state.peer_troubles.pop(changed.peer, None)
            if changed.error:
                state.peer_troubles[changed.peer] = Alarm(error=changed.error.removesuffix("."), since_ms=record.at_ms)
        case Kind.RESTORED, _:
            _restored(state, record)
        case Kind.RETURNING, _:
            began, told = record.at_ms if state.returning is None else state.returning.since_ms, record.body_as(records.Returning)
            returning = Returning(began, told.joins, frozenset(told.excused_peers), frozenset(told.queues))
            state.returning = returning if told.on else None


def _restored(state: JournalState, record: Record) -> None:
    """Let what is published here have another origin; what had the earlier ones may come back from peers."""
    state.peer_changes.restorations.append(restoration_of(record))
    instance = str(state.definitions.journal.instance)
    state.instances |= dict.fromkeys([state.journal_id, *(each.origin for each in state.peer_changes.restorations)], instance)
    renew_origins(state.message_types, state.peer_changes.restorations)


def _pulled(state: JournalState, record: Record) -> None:
    """Note how far a peer is pulled."""
    body, watermark = record.body_as(Pulled), watermark_of(record)
    peer = body.peer
    before = state.pulled.get(peer, watermark)
    gaps_after = before.gaps_after if body.gaps_after is None else body.gaps_after
    if watermark.record < 0:
        # It is read again, and what it had let go until then was told.
        gaps_after = max(gaps_after, before.record)
    missed = before.missed.union(body.missed) if watermark.record >= 0 else frozenset()
    state.pulled[peer] = replace(watermark, gaps_after=gaps_after, missed=missed)
    if body.gaps_after is not None:
        state.peer_changes.skips.discard(peer)
    state.peer_changes.forgotten.discard(peer)
    state.instances[watermark.journal] = peer
    if body.disagreements is not None:
        since_ms = {each: each.since_ms for each in state.disagreements.get(peer, ())}
        found = [Disagreement(*each) for each in body.disagreements]
        state.disagreements[peer] = [replace(each, since_ms=since_ms.get(each, record.at_ms)) for each in found]


def watermark_of(record: Record) -> Watermark:
    """Return how far a journal is pulled, as a `pulled` record says it."""
    body = record.body_as(Pulled)
    return Watermark(body.journal, body.number, body.digest, body.origin_uuid)


def replicate(state: JournalState) -> None:
    """Let queues know whose their messages are, from when they are pulled.

    What is known stays known while a queue is pulled from nobody: whose a message is would be forgotten, and in which life it
    ended. Only a queue that is defined as this instance's alone takes all of its messages. Dead-letter queues go with their source.
    """
    sources = {name: state.definitions.source_of(name) for name in state.queues}
    for name in sorted(state.queues, key=lambda name: sources[name] is not None):
        ledger, source = state.queues[name], state.queues.get(sources[name] or "")
        known = ledger.is_replicated and ledger.definition.ownership != LOCAL
        known = known if source is None else source.is_replicated
        with state.guard(name):
            _replicate(state, ledger, is_replicated=known or state.definitions.is_replicated(name))


def _replicate(state: JournalState, ledger: QueueLedger, *, is_replicated: bool) -> None:
    instance = state.definitions.journal.instance
    if not is_replicated:
        ledger.move(ledger.rows[State.REMOTE].copy(), Event.OWNED)
        ledger.ownership = Ownership()
    elif not ledger.is_replicated and instance is not None:
        ledger.ownership = Ownership(instance)
        # A letter belongs to who dead-lettered it, and so does what is dead.
        if ledger.definition.underlying_topic is not None:
            standing = ledger.entered - ledger.rows[State.REMOVED] - ledger.rows[State.DEAD] - ledger.barriers
            state.give_to_first_owners(ledger, standing)


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
