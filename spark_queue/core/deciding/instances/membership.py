"""An origin's word on its messages, once: in which replicated queues each is, as a barrier or not, and whose it is first (R129).

Everybody who pulls it takes that over as it stands, so definitions may change site by site.
"""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.records import Emit, Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger


def tells(definitions: Definitions) -> bool:
    """Return whether a journal's records say what messages are for replicated queues; logs of before left that to each instance."""
    return definitions.journal.instance is not None


def decide_all_published(state: JournalState, emit: Emit, *, begins: bool) -> None:
    """Record what nobody has said yet of what was published here.

    Parameters
    ----------
    begins : bool
        Whether queues may begin, which asks what was published before; otherwise one may have been set aside meanwhile.
    """
    for name, known in state.message_types.items() if tells(state.definitions) else ():
        first = 0 if begins else known.entered_until if known.told_from is None else known.told_from
        if first < known.entered_until:
            decide_published(state, name, to_bitmap([(first, known.entered_until)]), emit)


def decide_published(state: JournalState, message_type: str, rows: BitMap64, emit: Emit) -> None:
    """Record what those of `rows` are that were published here, for every replicated queue, unless it was said."""
    known = state.message_types[message_type]
    for ledger in state.queues_of(message_type):
        if ledger.ownership is None:
            continue
        undecided = known.origins.not_pulled(rows - known.membership(ledger.definition.name).known)
        if undecided:
            with state.guard(ledger.definition.name):
                decide(state, ledger, undecided, emit)


def decide(state: JournalState, ledger: QueueLedger, rows: BitMap64, emit: Emit) -> None:
    """Record what some messages are for a queue, of which nobody has said that."""
    queue, instance = ledger.definition, str(state.definitions.journal.instance)
    members, barriers = state.find_members(ledger, rows)
    owner = state.definitions.first_owner(queue, instance)
    for part, detail in ((members, {"owner": owner}), (barriers, {"barrier": True}), (rows - members - barriers, {})):
        # Where a file is missing the queue is set aside by now, and nothing is said.
        if part and queue.name in state.queues:
            emit(Kind.DECIDED, queue=queue.name, message_type=queue.message_type, ranges=to_ranges(part), detail=detail)
