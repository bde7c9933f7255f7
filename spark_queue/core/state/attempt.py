"""Attempts to append what came of a lease's batch to a sink, by one commit there that is the acknowledgement (DESIGN 19).

From `prepared` on an attempt is *in doubt*: it may stand in its sink, or come to stand there while nobody looks. So nothing
becomes of its messages until somebody has read the sink, or fenced it, and recorded `landed` or `fenced`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.records import Incarnation, Record, Staged
from spark_queue.core.replies import AttemptTold
from spark_queue.errors import LeaseError

if TYPE_CHECKING:
    from spark_queue.core.state.lease import Lease
    from spark_queue.core.state.ledger import QueueLedger


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A try to make a lease's batch one commit of a sink."""

    number: int
    table: str
    table_id: str
    #: The planner start whose run prepared it.
    incarnation: Incarnation
    prepared_at_ms: int
    #: The request by which it was prepared.
    request: str
    #: What becomes of the messages that are not in the commit; all others are acknowledged by it.
    exceptions: dict[Staged, BitMap64]
    #: Whether it stands in its sink.
    landed: bool = False
    #: Why nobody could decide about it.
    error: str | None = None
    #: Whether its sink could be read then, and only the fence could not be written.
    is_read: bool = False


@dataclass(slots=True)
class AttemptNumbers:
    """The numbers of one subscription name's attempts, which rise for ever (R124)."""

    last: int = 0
    fenced: BitMap64 = field(default_factory=BitMap64)


def begun(record: Record, incarnation: Incarnation) -> Attempt:
    """Return the attempt that a `prepared` record begins."""
    detail, exceptions = record.detail, dict[Staged, BitMap64]()
    for outcome, due_at_ms, error, ranges in detail["exceptions"]:
        exceptions.setdefault((outcome, due_at_ms, error), BitMap64()).update(to_bitmap(ranges))
    return Attempt(
        number=detail["attempt"],
        table=detail["table"],
        table_id=detail["table_id"],
        incarnation=incarnation,
        prepared_at_ms=record.at_ms,
        request=detail.get("request", ""),
        exceptions=exceptions,
    )


def exceptions_told(exceptions: Iterable[tuple[Staged, BitMap64]]) -> list[list[Any]]:
    """Return exceptions as a `prepared` record keeps them."""
    return [[*said, list(to_ranges(rows))] for said, rows in exceptions if rows]


def in_doubt(ledger: QueueLedger, subscription: str | None = None) -> Iterator[Lease]:
    """Yield the leases whose attempt nobody has decided about, or those of one subscription, which has one at most."""
    for lease in ledger.leases.values():
        if lease.is_in_doubt and subscription in (None, lease.subscription):
            yield lease


def told(lease: Lease) -> AttemptTold:
    """Return what people and wrappers are told of an attempt."""
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
    """Return why `what` has to wait for the decision about a lease's attempt, or cannot be any more since that has landed."""
    attempt = attempt_of(lease)
    facts = {"attempt": attempt.number, "subscription": lease.subscription, "queue": ledger.definition.name}
    return LeaseError("SINK_LANDED" if attempt.landed else "SINK_IN_DOUBT", table=attempt.table, what=what, **facts)


def fenced_refusal(ledger: QueueLedger, subscription: str, attempt: int) -> LeaseError:
    """Return why what is said of an attempt, or of its run, comes too late."""
    return LeaseError("SINK_FENCED", attempt=attempt, subscription=subscription, queue=ledger.definition.name)


def attempt_of(lease: Lease) -> Attempt:
    """Return the attempt of a lease that has one."""
    assert lease.attempt is not None, "the lease has an attempt"
    return lease.attempt
