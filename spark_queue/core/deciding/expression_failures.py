"""Messages on which an expression fails: they are counted where somebody looks, since nothing else tells of them (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from spark_queue.core.records import Emit, Kind
from spark_queue.core.state.ledger import QueueLedger

#: Bookmarks that a record names, for people to look at.
_EXAMPLES = 5


def count_failed_expressions(queues: Mapping[str, QueueLedger], emit: Emit) -> None:
    """Record how many messages of those that just came failed; their file may be retired before somebody folds the log."""
    for name, ledger in list(queues.items()):
        if ledger.failing:
            detail = {"messages": len(ledger.failing), "examples": list(islice(ledger.failing, _EXAMPLES))}
            emit(Kind.EXPRESSION_FAILED, queue=name, detail=detail)
