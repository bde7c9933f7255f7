"""Further names of messages that their publisher gave to several instances (DESIGN 17.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.records import Emit, Kind, OriginRows
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.ownership import MessageValue


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherNames:
    """Further names of messages of a type that are here already."""

    message_type: str
    #: First own bookmark, rows, UUID of the other origin, and the bookmark there.
    rows: tuple[OriginRows, ...]
    #: The names of those instances, by UUID.
    instances: Mapping[str, str]


def take_names(state: JournalState, names: OtherNames, *, peer: str, emit: Emit) -> None:
    """Record further names of messages, as far as they are new, and the greater of their first values and the known ones."""
    new = state.message_types[names.message_type].origins.new_names(names.rows)
    if not new:
        return
    here: dict[str, BitMap64] = {}
    for first, length, origin, _ in new:
        here[origin] = here.get(origin, BitMap64()) | to_bitmap([(first, first + length)])
    instances = {origin: names.instances[origin] for origin in here}
    ranges = to_ranges(BitMap64.union(BitMap64(), *here.values()))
    emit(records.Named(names=tuple(new), instances=instances), message_type=names.message_type, ranges=ranges)
    for ledger in state.queues_of(names.message_type):
        with state.guard(ledger.definition.name):
            for origin, rows in here.items():
                _take_start(state, ledger, rows, instances[origin], peer=peer, emit=emit)


def take_known_names(state: JournalState, ledger: QueueLedger, *, peer: str, emit: Emit) -> None:
    """Record the same for a queue that was set aside when the names came."""
    for origin, rows in state.message_types[ledger.definition.message_type].origins.named(ledger.entered):
        _take_start(state, ledger, rows, state.instances[origin], peer=peer, emit=emit)


def _take_start(state: JournalState, ledger: QueueLedger, rows: BitMap64, instance: str, *, peer: str, emit: Emit) -> None:
    """Apply like news that messages belong to an instance at first, where it published them, too."""
    if not ledger.is_replicated:
        return
    known = state.message_types[ledger.definition.message_type]
    # Of a message that was decided, its other origin knows the first owner.
    rows = (rows & ledger.entered) - ledger.barriers - known.membership(ledger.definition.name).known
    source = state.definitions.source_of(ledger.definition.name)
    if source in state.queues:
        # A letter starts with the instance that dead-lettered it.
        rows -= state.queues[source].entered
    take_first_owner(ledger, rows, ledger.definition.initial_owner or instance, peer=peer, emit=emit)


def take_first_owner(ledger: QueueLedger, rows: BitMap64, owner: str, *, peer: str, emit: Emit) -> None:
    """Record that messages belong to another first owner, where that is the greater value: that one published them, too."""
    value = MessageValue(owner=owner)
    changed = ledger.ownership.lesser(ledger.rows, rows, value)
    if changed:
        body = records.Replicated(peer=peer, owner=owner)
        emit(body, queue=ledger.definition.name, ranges=to_ranges(changed), reason=Kind.NAMED)
