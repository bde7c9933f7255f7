"""What records about pauses change in a queue's ledger."""

from __future__ import annotations

from spark_queue.core.ledger import QueueLedger
from spark_queue.core.records import Pause, Record, Unpause


def paused(ledger: QueueLedger, record: Record) -> None:
    """Let a queue grant nothing from now on."""
    ledger.pauses.add(Pause(str(record.reason)))


def unpaused(ledger: QueueLedger, record: Record) -> None:
    """End its pauses, or only the alarm."""
    if record.reason == Unpause.PROBE:
        ledger.pauses.discard(Pause.ALARM)
    else:
        ledger.pauses.clear()
