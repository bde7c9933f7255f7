"""Folds of records about the journal and its definitions (DESIGN 9, 15.7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import QueueDefinition
from spark_queue.core.folds.peers import pull_from_the_start, replicate
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.origins import Membership
from spark_queue.core.records import Decided, DefinitionsApplied, Ranges, Record
from spark_queue.core.state.ledger import QueueLedger, shrink
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.peer_changes import renew_origins
from spark_queue.core.state.selection import Selection

if TYPE_CHECKING:
    from spark_queue.core.state.journal_state import JournalState


def applied(state: JournalState, record: Record) -> None:
    """Replace the whole set of definitions."""
    body = record.body_as(DefinitionsApplied)
    before, state.definitions = state.definitions, parsing.parse_recorded(body.definitions, path=state.journal_id)
    resets = body.resets
    state.foresight.begin(resets)
    for name in state.message_types.keys() - state.definitions.message_types.keys():
        known = state.message_types[name]
        if known.followed is not None and not known.entered_until:
            # Defined again, it may follow another table, or none.
            del state.message_types[name]
    for name in state.definitions.message_types:
        state.message_types.setdefault(name, MessageTypeState(created_at_ms=state.created_at_ms))
    renew_origins(state.message_types, state.peer_changes.restorations)
    # What was set aside before it was left is not among them: it stays so.
    goes_on = {name: state.left[name] for name in body.goes_on if name in state.left}
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
        if dropped.is_replicated:
            state.left[name] = dropped
    replicate(state)
    pull_from_the_start(state, before)
    _enter_past(state, [each for each in fresh if not each.is_replicated], body.barriers)
    for ledger in fresh:
        if ledger.is_replicated:
            with state.guard(ledger.definition.name):
                _enter_told(state, ledger)


def _alter(state: JournalState, ledger: QueueLedger, queue: QueueDefinition) -> None:
    """Go on with a queue by another definition."""
    if ledger.definition.semantics != queue.semantics:
        ledger.forget_ended_leases()
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
        ledger.paused_since_ms = old.paused_since_ms
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
    for name in state.message_types:
        mine = [ledger for ledger in ledgers if ledger.definition.message_type == name and ledger.definition.underlying_topic]
        state.enter_past(name, mine, found)


def _enter_told(state: JournalState, ledger: QueueLedger) -> None:
    """Let into a replicated queue that begins what was said of messages before; of those of this instance records follow."""
    told = state.message_types[ledger.definition.message_type].membership(ledger.definition.name)
    for owner, rows in [*told.members.items(), (None, told.barriers)]:
        state.enter_decided(ledger, rows, owner=owner)


def decided(state: JournalState, record: Record) -> None:
    """Note what is said of messages for a replicated queue, once, and let them in (R129)."""
    known, queue = state.message_types[str(record.message_type)], str(record.queue)
    rows, body = to_bitmap(record.ranges), record.body_as(Decided)
    known.told.setdefault(queue, Membership()).add(rows, owner=body.owner, is_barrier=body.barrier)
    ledger = state.queues.get(queue)
    if ledger is None or not ledger.is_replicated or ledger.definition.message_type != record.message_type:
        return
    if body.owner is not None or body.barrier:
        with state.guard(queue):
            state.enter_decided(ledger, rows, owner=body.owner)
