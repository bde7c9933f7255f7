"""Messages in doubt: refusals, and summaries of their attempts (DESIGN 19)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Incarnation, Prepared, Record
from spark_queue.core.replies import AttemptTold
from spark_queue.core.state.attempt import Attempt
from spark_queue.core.state.verdict import Verdict
from spark_queue.errors import LeaseError

if TYPE_CHECKING:
    from spark_queue.core.state.lease import Lease
    from spark_queue.core.state.ledger import QueueLedger


def begun(record: Record, incarnation: Incarnation) -> Attempt:
    """Return the attempt that a `prepared` record begins."""
    body, exceptions = record.body_as(Prepared), dict[Verdict, BitMap64]()
    for outcome, due_at_ms, error, ranges in body.exceptions:
        exceptions.setdefault(Verdict(outcome, due_at_ms, error), BitMap64()).update(to_bitmap(ranges))
    return Attempt(
        number=body.attempt,
        table=body.table,
        table_id=body.table_id,
        incarnation=incarnation,
        prepared_at_ms=record.at_ms,
        request=body.request,
        exceptions=exceptions,
    )


def in_doubt(ledger: QueueLedger, subscription: str | None = None) -> Iterator[Lease]:
    """Yield the leases with an attempt in doubt, or those of one subscription, which has one at most."""
    for lease in ledger.leases.values():
        if lease.is_in_doubt and subscription in (None, lease.subscription):
            yield lease


def attempt_summary(lease: Lease) -> AttemptTold:
    """Return the summary of an attempt for people and wrappers."""
    attempt = attempt_of(lease)
    return AttemptTold(
        subscription=lease.subscription,
        attempt=attempt.number,
        table=attempt.table,
        table_id=attempt.table_id,
        lease=lease.number,
        prepared_at_ms=attempt.prepared_at_ms,
        due_at_ms=lease.due_at_ms,
        error=attempt.error,
    )


def refusal(ledger: QueueLedger, lease: Lease, what: str) -> LeaseError:
    """Return the refusal of `what`: it has to wait for the decision about a lease's attempt, or is too late, since that landed."""
    attempt = attempt_of(lease)
    facts = {"attempt": attempt.number, "subscription": lease.subscription, "queue": ledger.definition.name}
    return LeaseError("SINK_LANDED" if attempt.landed else "SINK_IN_DOUBT", table=attempt.table, what=what, **facts)


def fenced_refusal(ledger: QueueLedger, subscription: str, attempt: int) -> LeaseError:
    """Return the refusal of a statement about an attempt, or its run, that comes too late."""
    return LeaseError("SINK_FENCED", attempt=attempt, subscription=subscription, queue=ledger.definition.name)


def attempt_of(lease: Lease) -> Attempt:
    """Return the attempt of a lease that has one."""
    assert lease.attempt is not None, "the lease has an attempt"
    return lease.attempt
