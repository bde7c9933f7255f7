"""Removing messages: delete markers, and what a dead-letter queue must know (R57 to R59, DESIGN 15.11)."""

from __future__ import annotations

from typing import Any

from pyroaring import BitMap64

from spark_queue.core.lease import Lease
from spark_queue.core.records import DEAD_LETTER_REASONS, Kind, Removal
from spark_queue.core.turn import Turn


def remove(
    turn: Turn, rows: BitMap64, reason: Removal, *, lease: Lease | None = None, error: str | None = None, uncounted_cancels: int = 0
) -> None:
    """Write the delete marker of rows, and what a dead-letter queue must know of them.

    Parameters
    ----------
    uncounted_cancels : int
        Cancels that no `returned` record counts, since the message does not go back.
    """
    if not rows:
        return
    if reason not in DEAD_LETTER_REASONS:
        turn.emit(Kind.REMOVED, rows, of=lease, reason=reason)
        return
    for deliveries, delivered in list(turn.ledger.delivered.split(rows)):
        for cancels, part in list(turn.ledger.cancelled.split(delivered)):
            detail: dict[str, Any] = {"deliveries": deliveries, "cancels": cancels + uncounted_cancels}
            if error is not None:
                detail["error"] = error
            turn.emit(Kind.REMOVED, part, of=lease, reason=reason, detail=detail)
            letters = turn.dead_letters
            if letters is not None:
                detail["source"] = turn.ledger.definition.name
                turn.emit(Kind.DEAD_LETTERED, part, queue=letters.definition.name, reason=reason, detail=detail)
