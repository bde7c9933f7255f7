"""Folds of records about attempts to append to a sink (DESIGN 19)."""

from __future__ import annotations

from spark_queue.core.folds.subscriptions import seen
from spark_queue.core.records import Record, SinkUnreadable
from spark_queue.core.state.attempt import AttemptNumbers
from spark_queue.core.state.in_doubt import attempt_of, begun
from spark_queue.core.state.ledger import QueueLedger


def prepared(ledger: QueueLedger, record: Record) -> None:
    """Let a lease be in doubt: its batch may come to stand in a sink from now on."""
    lease = ledger.leases[int(record.lease or 0)]
    lease.attempt = begun(record, lease.incarnation)
    numbers = ledger.attempts.setdefault(lease.subscription, AttemptNumbers())
    numbers.last = lease.attempt.number
    seen(ledger, record)


def landed(ledger: QueueLedger, record: Record) -> None:
    """Let the batch of a lease stand in its sink: from now on what was prepared is what becomes of its messages."""
    lease = ledger.leases[int(record.lease or 0)]
    attempt = attempt_of(lease)
    attempt.landed, attempt.error = True, None
    lease.staged, lease.failure, lease.gives_back = (
        {verdict: rows.copy() for verdict, rows in attempt.exceptions.items()},
        None,
        False,
    )
    lease.stopped = False


def fenced(ledger: QueueLedger, record: Record) -> None:
    """Let a lease be an ordinary one again: its batch stands in no sink and never will."""
    lease = ledger.leases[int(record.lease or 0)]
    attempt = attempt_of(lease)
    ledger.attempts[lease.subscription].fenced.add(attempt.number)
    lease.fenced, lease.attempt = attempt, None


def sink_unreadable(ledger: QueueLedger, record: Record) -> None:
    """Note why nobody could decide about an attempt."""
    attempt, body = attempt_of(ledger.leases[int(record.lease or 0)]), record.body_as(SinkUnreadable)
    attempt.error, attempt.is_read = body.error, body.read
