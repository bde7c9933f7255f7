"""Pausing a queue or a subscription by hand."""

from __future__ import annotations

from spark_queue.core import records
from spark_queue.core.commands import Pause, Unpause
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import PauseReason, UnpauseReason
from spark_queue.core.replies import Done


def pause(work: UnitOfWork, _: Pause) -> Done:
    """Grant nothing from now on."""
    if not work.ledger.paused:
        work.emit(records.Paused(), reason=PauseReason.USER)
    return Done()


def unpause(work: UnitOfWork, _: Unpause) -> Done:
    """Grant again, for whatever cause the queue was paused."""
    if work.ledger.paused or any(each.is_stopped for each in work.ledger.subscriptions.values()):
        work.emit(records.Unpaused(), reason=UnpauseReason.USER)
    return Done()
