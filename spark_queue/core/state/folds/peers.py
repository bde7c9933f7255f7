"""What a journal knows of its peers, and thus whose the messages are that enter (DESIGN 17)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from spark_queue.core.definitions.agreement import WITHHOLDING, Disagreement
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.records import Record
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import Event, State
from spark_queue.core.state.ownership import Ownership, Watermark

if TYPE_CHECKING:
    from spark_queue.core.state.journal_state import JournalState


def pulled(state: JournalState, record: Record) -> None:
    """Note how far a peer is pulled."""
    peer, detail = str(record.detail["peer"]), record.detail
    state.pulled[peer] = Watermark(detail["journal"], detail["number"], detail["digest"])
    state.instances[detail["journal"]] = peer
    if "disagreements" in detail:
        since_ms = {each: each.since_ms for each in state.disagreements.get(peer, ())}
        found = [Disagreement(*each) for each in detail["disagreements"]]
        state.disagreements[peer] = [replace(each, since_ms=since_ms.get(each, record.at_ms)) for each in found]


def give_to_first_owners(state: JournalState, ledger: QueueLedger, rows: BitMap64) -> None:
    """Let messages of a replicated queue belong to whom they belong to at first (R102)."""
    if ledger.ownership is None:
        return
    if ledger.definition.initial_owner is not None:
        ledger.give(rows, term=0, owner=ledger.definition.initial_owner)
        return
    for origin, from_there in state.message_types[ledger.definition.message_type].origins.pulled.items():
        part = rows & from_there
        if part:
            ledger.give(part, term=0, owner=state.instances[origin])


def replicate(state: JournalState, name: str, ledger: QueueLedger) -> None:
    """Let a queue know whose its messages are, from when it is pulled; once it is no more, all of them are this journal's."""
    instance = state.definitions.journal.instance
    if not state.definitions.is_replicated(name):
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

    That is where more is pulled than before, or a queue did not fit. Taking news over twice changes nothing (DESIGN 17.3).
    """
    for name, watermark in state.pulled.items():
        old, new = before.peers.get(name), state.definitions.peers.get(name)
        known = state.disagreements.pop(name, [])
        if new is None:
            continue
        standing = [each for each in known if each.queue in new.queues]
        state.disagreements[name] = standing
        more = old is None or set(new.topics) - set(old.topics) or set(new.queues) - set(old.queues)
        if more or any(each.rule in WITHHOLDING for each in standing):
            state.pulled[name] = replace(watermark, record=-1, digest="")
