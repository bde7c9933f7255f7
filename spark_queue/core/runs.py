"""What the batches themselves say: fn starts and ends, outcomes, the listener's proof, and settling by hand (P4, P5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from spark_queue.core.delivery import AUTO
from spark_queue.core.lease import Incarnation, Lease, Subscription
from spark_queue.core.lifecycle import State
from spark_queue.core.records import RUN_FAILED, Kind, Outcome
from spark_queue.core.session import Session
from spark_queue.core.settlement import apply_outcome, in_queue, prove, settle_early
from spark_queue.core.turn import Turn
from spark_queue.errors import CallerError, LeaseError

#: Longest error text that is kept with a message, in characters.
ERROR_TEXT_LIMIT = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeOf:
    """An outcome that somebody gives to some messages."""

    outcome: Outcome
    rows: BitMap64
    #: Cancel: when the messages become available again, in milliseconds; None for at once.
    due_at_ms: int | None = None
    error: str | None = None


@dataclass(slots=True)
class SettledCounts:
    """Messages that a settlement by hand changed, and those that it found settled before."""

    acknowledged: int = 0
    cancelled: int = 0
    expired: int = 0
    #: Acknowledged although the named lease no longer held them.
    late: int = 0
    #: Removed before; nothing changed.
    repeated: int = 0


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

    With `cancel` a failure is an outcome of the whole batch: Spark takes the batch for done, and its rows go back.
    """
    lease = _lease_of_run(turn, subscription, session.incarnation, lease_number)
    if lease is None:
        return
    if cancel:
        outcomes, error = (OutcomeOf(outcome=Outcome.CANCEL, rows=lease.rows.copy(), error=error),), None
    outcomes = tuple(outcomes)
    _check_outcomes(turn, outcomes, lease.rows, "are not in the batch")
    if error is not None:
        turn.emit(Kind.OUTCOMES, of=lease, reason=RUN_FAILED, detail={"error": error[:ERROR_TEXT_LIMIT]})
    _stage(turn, lease, outcomes)
    if error is None:
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


def settle(turn: Turn, outcomes: Iterable[OutcomeOf], *, lease_number: int | None) -> SettledCounts:
    """Settle messages by hand (R36 to R39, DESIGN 15.1).

    Parameters
    ----------
    lease_number : int or None
        The lease under which the caller received them: before its proof they are staged, after it they act while that lease
        holds them, later only an acknowledge is accepted. None for somebody who holds no lease, and acts at once.
    """
    outcomes = tuple(outcomes)
    _check_outcomes(turn, outcomes, turn.ledger.entered, "never entered the queue")
    counts = SettledCounts()
    if turn.ledger.definition.at_most_once:
        # R40: these messages are gone already; the proof of their batch frees the backlog (R17).
        counts.repeated = sum(len(each.rows) for each in outcomes)
        return counts
    lease = None if lease_number is None else turn.ledger.leases.get(lease_number)
    staged: list[OutcomeOf] = []
    if lease is not None and not lease.proven:
        _check_outcomes(turn, outcomes, lease.rows, f"are not in lease {lease.number}")
        # What somebody else has taken from the lease is settled as after its end.
        staged = [replace(each, rows=each.rows & lease.claim) for each in outcomes]
        outcomes = tuple(replace(each, rows=each.rows - lease.claim) for each in outcomes)
    for each in outcomes:
        _check_permitted(turn, each, lease, lease_number)
    if lease is not None:
        _stage(turn, lease, staged)
    for each in staged:
        _count(counts, each.outcome, len(each.rows))
    for each in outcomes:
        _settle_now(turn, each, lease, lease_number, counts)
    return counts


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


def _check_outcomes(turn: Turn, outcomes: Iterable[OutcomeOf], known: BitMap64, reason: str) -> None:
    said = BitMap64()
    name = turn.ledger.definition.name
    for each in outcomes:
        unknown = each.rows - known
        if unknown:
            raise CallerError("UNKNOWN_BOOKMARK", queue=name, count=len(unknown), bookmark=unknown.min(), reason=reason)
        twice = said & each.rows
        if twice:
            text = f"bookmark {twice.min()} has two outcomes."
            raise CallerError("OUTCOME_INVALID", queue=name, reason=text, next_step="Name each row once.")
        said |= each.rows


def _stage(turn: Turn, lease: Lease, outcomes: Iterable[OutcomeOf]) -> None:
    for each in outcomes:
        detail = {} if each.error is None else {"error": each.error[:ERROR_TEXT_LIMIT]}
        if each.rows:
            turn.emit(Kind.OUTCOMES, each.rows, of=lease, reason=each.outcome, due_at_ms=each.due_at_ms, detail=detail)


def _check_permitted(turn: Turn, each: OutcomeOf, lease: Lease | None, lease_number: int | None) -> None:
    """Refuse what is too late for anything but an acknowledge, and what strict leasing forbids (R38)."""
    ledger = turn.ledger
    rows = in_queue(turn, each.rows)
    held = BitMap64() if lease is None else rows & lease.held
    if each.outcome != Outcome.ACKNOWLEDGE:
        allowed = held if lease_number is not None else rows & ledger.rows[State.LEASED]
        if each.outcome == Outcome.EXPIRE and lease_number is None:
            allowed = rows
        refused = each.rows - allowed
        if refused:
            reason = "the lease that delivered them is over" if lease_number is not None else "they are not leased"
            raise LeaseError(
                "LEASE_SETTLED",
                count=len(refused),
                queue=ledger.definition.name,
                bookmark=refused.min(),
                outcome=each.outcome,
                reason=reason,
            )
    if ledger.definition.leasing == "strict":
        _check_holder(turn, (rows & ledger.rows[State.LEASED]) - held)


def _check_holder(turn: Turn, foreign: BitMap64) -> None:
    for lease in turn.ledger.leases.values():
        if lease.held.intersect(foreign):
            first = (lease.held & foreign).min()
            name = turn.ledger.definition.name
            raise LeaseError("LEASE_HELD", bookmark=first, queue=name, holder=lease.subscription, leased_until=lease.due_at_ms)


def _settle_now(turn: Turn, each: OutcomeOf, lease: Lease | None, lease_number: int | None, counts: SettledCounts) -> None:
    rows = in_queue(turn, each.rows)
    counts.repeated += len(each.rows) - len(rows)
    if lease_number is not None:
        counts.late += len(rows) - (0 if lease is None else len(rows & lease.held))
    if rows:
        apply_outcome(turn, (each.outcome, each.due_at_ms, each.error), rows, lease=lease)
    _count(counts, each.outcome, len(rows))


def _count(counts: SettledCounts, outcome: Outcome, messages: int) -> None:
    match outcome:
        case Outcome.ACKNOWLEDGE:
            counts.acknowledged += messages
        case Outcome.CANCEL:
            counts.cancelled += messages
        case Outcome.EXPIRE:
            counts.expired += messages
