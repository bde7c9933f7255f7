"""Messages on which an expression fails: they are counted where somebody looks, since nothing else tells of them (DESIGN 8)."""

from __future__ import annotations

from itertools import islice

from spark_queue.core.records import Emit, Kind, Record
from spark_queue.core.state.journal_state import JournalState

#: Bookmarks that a record names, for people to look at.
_EXAMPLES = 5


def count_failed_expressions(state: JournalState, record: Record, emit: Emit) -> None:
    """Record how many messages of those that just came failed; their file may be retired before somebody folds the log."""
    for name in list(state.queues_changed_by(record)):
        ledger = state.queues.get(name)
        if ledger is not None and ledger.failing:
            detail = {"messages": len(ledger.failing), "examples": list(islice(ledger.failing, _EXAMPLES))}
            emit(Kind.EXPRESSION_FAILED, queue=name, detail=detail)
