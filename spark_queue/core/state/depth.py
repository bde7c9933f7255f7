"""The active part of a queue with a target depth: what lies beyond it waits, inactive (R79 to R84).

Which messages are active follows from the records alone: the oldest inactive ones become active whenever a record leaves room, and
up to what a record transfers.
"""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, oldest
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import ACTIVE, Event, State


def fill(ledger: QueueLedger, now_ms: int) -> None:
    """Activate the oldest inactive messages up to the target; those acknowledged before are passed over (R81, R83)."""
    inactive = ledger.rows[State.INACTIVE]
    target = ledger.definition.target_queue_depth
    room = target - _active(ledger) if target and inactive else len(inactive)
    if room <= 0:
        return
    deferred = ledger.deferred_after(now_ms)
    waiting = inactive - deferred
    chosen = oldest(waiting, room)
    ledger.reached |= deferred if len(waiting) < room else below(deferred, chosen.max())
    ledger.move(chosen, Event.ACTIVATED)


def reach(ledger: QueueLedger, rows: BitMap64, now_ms: int) -> None:
    """Activate what waits up to the last inactive one of `rows`, beyond the target where it must be (R84).

    From then on `fill` activates nothing until there is room again.
    """
    beyond = rows & ledger.rows[State.INACTIVE]
    if beyond:
        passed = below(ledger.rows[State.INACTIVE], beyond.max() + 1)
        deferred = (passed & ledger.deferred_after(now_ms)) - rows
        ledger.reached |= deferred
        ledger.move(passed - deferred, Event.ACTIVATED)


def shrink(ledger: QueueLedger) -> None:
    """Let the youngest available messages beyond a new target wait; what a lease may still resume or settle stays active."""
    target = ledger.definition.target_queue_depth
    excess = _active(ledger) - target if target else 0
    free = ledger.rows[State.AVAILABLE] - BitMap64.union(BitMap64(), *(lease.recoverable for lease in ledger.leases.values()))
    ledger.move(free - oldest(free, max(0, len(free) - excess)), Event.DEACTIVATED)


def _active(ledger: QueueLedger) -> int:
    return sum(len(ledger.rows[state]) for state in ACTIVE)
