"""Folds of records about pauses."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.definitions.keys import Backoff
from spark_queue.core.records import Paused, PauseReason, Record, UnpauseReason
from spark_queue.core.state.alarm import PROBE_BACKOFF, Alarm
from spark_queue.core.state.ledger import QueueLedger


def paused(ledger: QueueLedger, record: Record) -> None:
    """Let a queue grant nothing from now on; in an alarm, a subscription a lone message at a time."""
    if record.reason == PauseReason.USER:
        ledger.paused_since_ms = record.at_ms
        return
    subscription = ledger.subscriptions[str(record.subscription)]
    # A run that ends with the messages of its beginning tries the first one at once: it ends where that fails, too.
    probe_at_ms = record.at_ms + (0 if subscription.run_until is not None else probe_backoff(ledger).delay_ms(0))
    subscription.alarm = Alarm(error=str(record.body_as(Paused).error), since_ms=record.at_ms, probe_at_ms=probe_at_ms)
    subscription.failed, subscription.isolation_limit = BitMap64(), None
    for row, known in subscription.suspects.items():
        ledger.acquit(row, known)


def unpaused(ledger: QueueLedger, record: Record) -> None:
    """End its pauses, or only the alarm of a subscription."""
    if record.reason == UnpauseReason.USER:
        ledger.paused_since_ms = None
    for name in ledger.subscriptions if record.subscription is None else (record.subscription,):
        ledger.subscriptions[name].suspects.clear()
        ledger.subscriptions[name].alarm, ledger.subscriptions[name].idle_failures = None, 0


def probe_backoff(ledger: QueueLedger) -> Backoff:
    """Return how long to wait from one lone message to the next during an alarm."""
    return ledger.definition.retry_backoff or PROBE_BACKOFF
