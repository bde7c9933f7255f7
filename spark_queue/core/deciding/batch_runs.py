"""What the batches themselves say: fn starts and ends, outcomes, the listener's proof, and settling by hand (P4, P5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.deciding.delivery import AUTO
from spark_queue.core.deciding.session import Session
from spark_queue.core.deciding.settlement import prove, settle_early
from spark_queue.core.deciding.turn import Turn
from spark_queue.core.records import RUN_FAILED, Kind, Outcome
from spark_queue.core.state.lease import Incarnation, Lease, Subscription
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import CallerError, LeaseError

#: Longest error text that is kept with a message, in characters.
ERROR_TEXT_LIMIT = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeOf:
    """An outcome that somebody gives to some messages."""

    outcome: Outcome
    rows: BitMap64 = field(default_factory=BitMap64)
    #: Cancel: when the messages become available again, in milliseconds; None for at once.
    due_at_ms: int | None = None
    error: str | None = None
    #: Settling by hand: the number of the lease under which the caller received them; None for somebody who holds no lease.
    lease: int | None = None

    @property
    def error_text(self) -> str | None:
        """As much of the error as is kept."""
        return None if self.error is None else self.error[:ERROR_TEXT_LIMIT]


def end_run(
    turn: Turn,
    subscription: Subscription,
    session: Session,
    *,
    lease_number: int,
    outcomes: Iterable[OutcomeOf],
    error: str | None,
    cancel: bool,
    settle: bool,
) -> None:
    """Note that fn ended: stage its outcomes, or its failure; with `settle` they take effect at once.

    With `cancel` Spark takes the batch for done, and its proof gives its rows back.
    """
    lease = _lease_of_run(turn, subscription, session.incarnation, lease_number)
    if lease is None:
        return
    outcomes = tuple(outcomes)
    check_outcomes(turn, outcomes, lease.rows, "are not in the batch")
    if not cancel:
        refuse_barriers(turn, outcomes)
    if error is not None:
        detail = {"error": error[:ERROR_TEXT_LIMIT]} | ({"cancel": True} if cancel else {})
        turn.emit(Kind.OUTCOMES, of=lease, reason=RUN_FAILED, detail=detail)
    stage(turn, lease, outcomes)
    if error is None or cancel:
        session.returned = lease.number
        if settle:
            settle_early(turn, lease)


def prove_run(turn: Turn, subscription: Subscription, incarnation: Incarnation, lease_number: int) -> None:
    """Take the listener's word that Spark committed a batch; said before, it changes nothing."""
    newest = turn.ledger.leases.get(subscription.lease)
    if lease_number < subscription.lease or newest is None or newest.proven:
        return
    lease = _lease_of_run(turn, subscription, incarnation, lease_number)
    if lease is not None:
        prove(turn, lease, acknowledges=subscription.ack_mode == AUTO)


def _lease_of_run(turn: Turn, subscription: Subscription, incarnation: Incarnation, lease_number: int) -> Lease | None:
    """Give the open lease that a run speaks for; None for the batch without a lease."""
    run = f"{list(incarnation)} of lease {lease_number}"
    if incarnation != subscription.incarnation:
        reason = f"a newer reader, incarnation {list(subscription.incarnation)}, took the subscription over"
    elif lease_number == 0:
        return None
    else:
        lease = turn.ledger.open_lease(subscription)
        if lease is not None and lease.number == lease_number:
            return lease
        reason = f"that lease is settled, and the newest is {subscription.lease}"
    raise LeaseError("STALE_RUN", subscription=subscription.name, queue=turn.ledger.definition.name, run=run, reason=reason)


#: What to do about bookmarks that nobody knows.
NAME_KNOWN_ROWS = "Nothing was settled. Name only rows that were read there."


def check_outcomes(turn: Turn, outcomes: Iterable[OutcomeOf], known: BitMap64, reason: str) -> None:
    """Refuse rows that are not `known`, for a reason, and rows that are named twice."""
    said = BitMap64()
    name = turn.ledger.definition.name
    for each in outcomes:
        unknown = each.rows - known
        if unknown:
            facts = {"count": len(unknown), "bookmark": unknown.min(), "reason": reason}
            raise CallerError("UNKNOWN_BOOKMARK", queue=name, next_step=NAME_KNOWN_ROWS, **facts)
        twice = said & each.rows
        if twice:
            text = f"bookmark {twice.min()} has two outcomes."
            raise CallerError("OUTCOME_INVALID", queue=name, reason=text, next_step="Name each row once.")
        said |= each.rows


def refuse_barriers(turn: Turn, outcomes: Iterable[OutcomeOf]) -> None:
    """Refuse to settle a barrier: it needs no outcome (R71). To acknowledge one that was released changes nothing, and may be."""
    ledger = turn.ledger
    for each in outcomes:
        refused = each.rows & (ledger.rows[State.HELD] if each.outcome == Outcome.ACKNOWLEDGE else ledger.barriers)
        if refused:
            reason = f"bookmark {refused.min()} is a barrier, which leaves the queue by itself once nothing stands before it."
            next_step = "Leave rows out for which is_barrier is true."
            raise CallerError("OUTCOME_INVALID", queue=ledger.definition.name, reason=reason, next_step=next_step)


def stage(turn: Turn, lease: Lease, outcomes: Iterable[OutcomeOf]) -> None:
    """Note what is said of a lease's rows until its proof, or its end."""
    for each in outcomes:
        detail = {} if each.error is None else {"error": each.error_text}
        if each.rows:
            turn.emit(Kind.OUTCOMES, each.rows, of=lease, reason=each.outcome, due_at_ms=each.due_at_ms, detail=detail)
