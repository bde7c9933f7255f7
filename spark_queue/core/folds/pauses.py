"""What records about pauses change in a queue's ledger."""

from __future__ import annotations

from spark_queue.core.alarm import PROBE_BACKOFF, Alarm
from spark_queue.core.keys import Backoff
from spark_queue.core.ledger import QueueLedger
from spark_queue.core.records import Pause, Record, Unpause


def paused(ledger: QueueLedger, record: Record) -> None:
    """Let a queue grant nothing from now on; in an alarm, a lone message at a time."""
    ledger.pauses.add(Pause(str(record.reason)))
    if record.reason == Pause.ALARM:
        probe_at_ms = record.at_ms + probe_backoff(ledger).delay_ms(0)
        ledger.alarm = Alarm(error=record.detail["error"], since_ms=record.at_ms, probe_at_ms=probe_at_ms)
        for row in ledger.suspects:
            ledger.acquit(row)


def unpaused(ledger: QueueLedger, record: Record) -> None:
    """End its pauses, or only the alarm."""
    if record.reason == Unpause.PROBE:
        ledger.pauses.discard(Pause.ALARM)
    else:
        ledger.pauses.clear()
    ledger.suspects.clear()
    ledger.alarm = None


def probe_backoff(ledger: QueueLedger) -> Backoff:
    """Give how long to wait from one lone message to the next during an alarm."""
    return ledger.definition.retry_backoff or PROBE_BACKOFF
