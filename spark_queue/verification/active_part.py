"""What must always hold of a queue with a target depth (R79 to R84)."""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap64

from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import ACTIVE, State


def of_active_part(ledger: QueueLedger) -> Iterator[str]:
    """Yield what is broken: the active part is full as long as anything waits, and what comes up acknowledged is gone."""
    inactive, target = ledger.rows[State.INACTIVE], ledger.definition.target_queue_depth
    if inactive and sum(len(ledger.rows[state]) for state in ACTIVE) < max(target, 1):
        yield f"{len(inactive)} message(s) are inactive, and the active part is not full"
    deferred = BitMap64.union(BitMap64(), *ledger.deferred.values())
    if not deferred.issubset(inactive) or sum(map(len, ledger.deferred.values())) != len(deferred):
        yield "messages whose acknowledgement is deferred are not inactive, or are deferred twice"
    if ledger.reached:
        yield f"{len(ledger.reached)} message(s) were acknowledged before, came up, and are still there"
