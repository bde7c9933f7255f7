"""Isolation: a failing batch is taken apart down to one message, and then it is told whose fault it is (DESIGN 8, 15.12).

A message that fails alone is a *suspect*. Another one is tried next; where that succeeds, the suspect's failures count, and
at its limits it becomes a dead letter. Where three different ones fail with no success between, the sink is to blame: the
queue pauses with an alarm, nothing was counted, and one lone message at a time is tried until one succeeds.
"""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.alarm import SUSPECTS_LIMIT
from spark_queue.core.granting import grantable
from spark_queue.core.lease import Lease
from spark_queue.core.lifecycle import State
from spark_queue.core.records import Kind, Pause, Removal, Return, Unpause
from spark_queue.core.removal import remove, remove_aged
from spark_queue.core.turn import Turn


def isolate(turn: Turn, lease: Lease, rows: BitMap64, *, limit: int) -> None:
    """Return part of a failing batch without counting a delivery; the next grant is at most `limit` messages."""
    rows = remove_aged(turn, rows, lease=lease)
    if rows:
        turn.emit(Kind.RETURNED, rows, of=lease, reason=Return.ISOLATED, detail={"limit": limit})


def is_suspect(turn: Turn, lease: Lease) -> bool:
    """Tell whether the lone message of a lease that did not succeed may have failed by the sink's fault.

    Where too few others wait to find out, it is held against the message, as ever.
    """
    ledger = turn.ledger
    if len(lease.rows) != 1 or lease.is_barrier:
        return False
    if Pause.ALARM in ledger.pauses:
        return True
    others = grantable(turn, ledger.subscriptions[lease.subscription]) | BitMap64(ledger.suspects)
    return lease.failure is not None and len(others - lease.rows) >= SUSPECTS_LIMIT


def suspect(turn: Turn, lease: Lease, reason: Return, *, due_at_ms: int | None = None) -> None:
    """Return a lone message that failed, for another to be tried; the third in a row raises the alarm."""
    ledger = turn.ledger
    if not remove_aged(turn, lease.rows, lease=lease):
        return
    detail = {"alone": True, "limit": 1} | ({} if lease.failure is None else {"error": lease.failure})
    turn.emit(Kind.RETURNED, lease.rows, of=lease, reason=reason, due_at_ms=due_at_ms, detail=detail)
    if len(ledger.suspects) >= SUSPECTS_LIMIT and Pause.ALARM not in ledger.pauses:
        error = f"{len(ledger.suspects)} messages failed one after the other, each alone. The last error: {lease.failure}"
        turn.emit(Kind.PAUSED, BitMap64(ledger.suspects), reason=Pause.ALARM, detail={"error": error})


def confirm(turn: Turn) -> None:
    """Draw the conclusions from a success: an alarm ends, and suspects past their limits become dead letters."""
    ledger, queue = turn.ledger, turn.ledger.definition
    if Pause.ALARM in ledger.pauses:
        turn.emit(Kind.UNPAUSED, reason=Unpause.PROBE)
    for row, known in list(ledger.suspects.items()):
        rows = BitMap64([row]) & (ledger.rows[State.AVAILABLE] | ledger.rows[State.DELAYED])
        if queue.max_deliveries and ledger.delivered.at_least(queue.max_deliveries, rows):
            remove(turn, rows, Removal.MAX_DELIVERIES, error=known.error)
        elif queue.max_cancels and ledger.cancelled.at_least(queue.max_cancels + 1, rows):
            remove(turn, rows, Removal.MAX_CANCELS, error=known.error)
