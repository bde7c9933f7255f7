"""What a journal knows of its peers, and thus whose the messages are that enter (DESIGN 17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap64

from spark_queue.core.message_files.segment import Segment
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


def give_to_owners(state: JournalState, segment: Segment, ledger: QueueLedger, rows: BitMap64) -> None:
    """Let messages that enter a replicated queue belong to whom they belong to at first (R102)."""
    if ledger.ownership is None:
        return
    if ledger.definition.initial_owner is not None:
        ledger.give(rows, term=0, owner=ledger.definition.initial_owner)
        return
    for origin, from_there in state.message_types[segment.message_type].origins.pulled.items():
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
        owner = ledger.definition.initial_owner
        if owner is not None:
            ledger.give(ledger.entered - ledger.rows[State.REMOVED] - ledger.barriers, term=0, owner=owner)
