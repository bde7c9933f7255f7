"""Pausing a queue by hand (R41): nothing is granted, and what is leased goes on to its end."""

from __future__ import annotations

from spark_queue.core.commands import Pause, Unpause
from spark_queue.core.deciding.turn import Turn
from spark_queue.core.records import Kind
from spark_queue.core.records import Pause as PauseReason
from spark_queue.core.records import Unpause as UnpauseReason
from spark_queue.core.replies import Done


def pause(turn: Turn, _: Pause) -> Done:
    """Grant nothing from now on."""
    if not turn.ledger.paused:
        turn.emit(Kind.PAUSED, reason=PauseReason.USER)
    return Done()


def unpause(turn: Turn, _: Unpause) -> Done:
    """Grant again, whatever the queue was paused for."""
    if turn.ledger.paused or any(each.is_stopped for each in turn.ledger.subscriptions.values()):
        turn.emit(Kind.UNPAUSED, reason=UnpauseReason.USER)
    return Done()
