"""What records about expressions change in a queue's ledger."""

from __future__ import annotations

from spark_queue.core.records import Record
from spark_queue.core.state.ledger import QueueLedger


def failed(ledger: QueueLedger, record: Record) -> None:
    """Count messages on which an expression failed, as they were found when it was recorded."""
    ledger.failed_expressions += record.detail["messages"]
    ledger.failing.clear()
