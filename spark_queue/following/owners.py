"""Whose the messages of replicated queues were over time: owned here, owned elsewhere, and how many moved (R119).

No record alone tells it: first owners follow from origins, and what is gone belongs to nobody. So it is noted after each record
while a log is folded, and only that of an instance is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.records import Record
from spark_queue.core.state.age import oldest_ms
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import OWNED_HERE, State
from spark_queue.following.steps import StepSeries


@dataclass(slots=True)
class OwnerTrace:
    """One queue."""

    owned: StepSeries = field(default_factory=StepSeries)
    remote: StepSeries = field(default_factory=StepSeries)
    transferred_in: StepSeries = field(default_factory=StepSeries)
    transferred_out: StepSeries = field(default_factory=StepSeries)
    #: When the oldest that is owned here was published; -1 when none is.
    oldest_ms: StepSeries = field(default_factory=StepSeries)

    def note(self, state: JournalState, ledger: QueueLedger, at_ms: int) -> None:
        """Note how it is from a moment on."""
        ownership = ledger.ownership
        oldest = oldest_ms(state, ledger, (ledger.rows[each] for each in OWNED_HERE))
        self.owned.put(at_ms, ledger.depth)
        self.remote.put(at_ms, len(ledger.rows[State.REMOTE]))
        self.transferred_in.put(at_ms, 0 if ownership is None else ownership.came_from.total())
        self.transferred_out.put(at_ms, 0 if ownership is None else ownership.given_to.total())
        self.oldest_ms.put(at_ms, -1 if oldest is None else oldest)


class OwnerHistory:
    """All queues of an instance.

    Attributes
    ----------
    traces : dict of str to OwnerTrace
        By the name of the queue.
    """

    def __init__(self) -> None:
        self.traces: dict[str, OwnerTrace] = {}

    def fold(self, state: JournalState, records: Sequence[Record]) -> None:
        """Fold records into a state, and note after each of them what it changed."""
        state.foresee(records)
        for record in records:
            state.fold(record)
            for name in [str(record.queue)] if record.queue is not None else list(state.queues):
                if name in state.queues:
                    self.traces.setdefault(name, OwnerTrace()).note(state, state.queues[name], record.at_ms)
        state.foresee(())


def owners_of(state: JournalState, traits: TraitSource, records: Callable[[], Sequence[Record]]) -> OwnerHistory | None:
    """Return whose the messages of an instance were, which takes a fold of its whole log; None for any other journal.

    Parameters
    ----------
    state
        What the log leads to.
    records
        Gives all of its records.
    """
    if state.definitions.journal.instance is None:
        return None
    owners = OwnerHistory()
    owners.fold(JournalState(traits), records())
    return owners
