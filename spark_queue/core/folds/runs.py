"""Folds of records about outcomes: of runs of a batch until its proof, and of receivers."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import count_rows, to_bitmap
from spark_queue.core.folds.subscriptions import seen
from spark_queue.core.records import RUN_FAILED, RUN_STOPPED, Outcomes, Record
from spark_queue.core.state.alarm import IDLE_FAILURES_LIMIT, Alarm
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.subscription import Subscription
from spark_queue.core.state.verdict import Verdict


def outcomes(ledger: QueueLedger, record: Record) -> None:
    """Stage what a batch said, or note that it failed, or that its run was stopped."""
    if record.lease is None:
        _ran_idle(seen(ledger, record), record)
        return
    lease, body = ledger.leases[int(record.lease)], record.body_as(Outcomes)
    if body.final:
        rows = to_bitmap(record.ranges)
        lease.rows -= rows
        ledger.delivered.forget(rows)
        ledger.selection.order_keys.leave(rows)
    elif record.reason in (RUN_FAILED, RUN_STOPPED):
        lease.failure, lease.stopped = body.error, record.reason == RUN_STOPPED
        lease.gives_back = body.cancel
    else:
        lease.stage(Verdict(str(record.reason), record.due_at_ms, body.error), to_bitmap(record.ranges))


def _ran_idle(subscription: Subscription, record: Record) -> None:
    """Note how a run ended that had no messages: several in a row that failed are an alarm, which pauses nothing."""
    if record.reason == RUN_FAILED:
        subscription.idle_failures += 1
        if subscription.idle_failures >= IDLE_FAILURES_LIMIT and subscription.alarm is None:
            error = (
                f"subscription '{subscription.name}': {subscription.idle_failures} runs without messages failed in a row. "
                f"The last error: {record.body_as(Outcomes).error}"
            )
            subscription.alarm = Alarm(error=error, since_ms=record.at_ms)
        return
    if subscription.idle_failures >= IDLE_FAILURES_LIMIT and not subscription.is_stopped:
        subscription.alarm = None
    subscription.idle_failures = 0


def refused(ledger: QueueLedger, record: Record) -> None:
    """Count outcomes of a receiver that came too late; they change nothing else."""
    ledger.outcomes_too_late += count_rows(record.ranges)


def proven(ledger: QueueLedger, record: Record) -> None:
    """End a lease whose batch Spark has committed."""
    subscription, lease = seen(ledger, record), ledger.leases[int(record.lease or 0)]
    lease.proven = True
    if ledger.definition.at_most_once:
        ledger.delivered.forget(lease.rows)
        ledger.selection.order_keys.leave(lease.rows)
    lease.recoverable = BitMap64()
    lease.staged.clear()
    # A batch that read nothing, since its messages were given back, is no success.
    if lease.succeeded:
        subscription.suspects.clear()
        subscription.alarm, subscription.idle_failures = None, 0
        # One message alone, and a piece of a failed batch, say nothing about how large a batch may be.
        if subscription.isolation_limit is not None and len(lease.rows) > 1 and not lease.searches:
            doubled = subscription.isolation_limit * 2
            subscription.isolation_limit = doubled if doubled < lease.limit else None
        subscription.failed -= lease.rows
