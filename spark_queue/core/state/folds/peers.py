"""What a journal knows of its peers, and thus whose the messages are that enter (DESIGN 17)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Record
from spark_queue.core.state.alarm import Alarm
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import Event, State
from spark_queue.core.state.ownership import Ownership, Watermark
from spark_queue.errors import JournalError

if TYPE_CHECKING:
    from spark_queue.core.state.journal_state import JournalState


def pulled(state: JournalState, record: Record) -> None:
    """Note how far a peer is pulled."""
    peer, detail = str(record.detail["peer"]), record.detail
    state.pulled[peer] = Watermark(detail["journal"], detail["number"], detail["digest"])
    state.instances[detail["journal"]] = peer


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
    for origin, named in state.message_types[ledger.definition.message_type].origins.named(rows):
        # It was published to several, and the greater value is true.
        owner = state.instances[origin]
        lesser = (part for _, known, part in ledger.ownership.by_owner(named) if known < owner)
        ledger.give(BitMap64.union(BitMap64(), *lesser), term=0, owner=owner)


def clashed(ledger: QueueLedger, segment: Segment) -> None:
    """Note the messages of a file that have a number which another message of their publisher has, as an alarm."""
    for row, rows, publisher, sequence in segment.clashes:
        part = ledger.entered & to_bitmap([(segment.first + row, segment.first + row + rows)])
        if part:
            ledger.clashing |= part
            clash = JournalError("PUBLISHER_CLASH", publisher=publisher, sequence=sequence, bookmark=part.min())
            ledger.clash = Alarm(error=str(clash).removesuffix("."), since_ms=segment.entered_at_ms)


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
    """Let the logs of peers be read again from which more is pulled than before: what they said of it was passed over.

    News that were taken over already change nothing (DESIGN 17.3).
    """
    for name, watermark in state.pulled.items():
        old, new = before.peers.get(name), state.definitions.peers.get(name)
        if new is not None and (old is None or set(new.topics) - set(old.topics) or set(new.queues) - set(old.queues)):
            state.pulled[name] = replace(watermark, record=-1, digest="")
