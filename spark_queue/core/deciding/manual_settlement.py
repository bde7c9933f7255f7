"""What people do to messages by hand: settle them by list or by filter, and purge them (R36 to R40, DESIGN 15.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyroaring import BitMap64

from spark_queue.core.deciding.batch_runs import OutcomeOf, check_outcomes, refuse_barriers, stage
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.settlement import apply_outcome, give_back_followers, in_queue
from spark_queue.core.deciding.turn import Turn
from spark_queue.core.records import Kind, Outcome, Removal
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import LeaseError


@dataclass(slots=True)
class SettledCounts:
    """Messages that a settlement by hand changed, and those that it left as they were."""

    acknowledged: int = 0
    cancelled: int = 0
    expired: int = 0
    #: Acknowledged although the named lease no longer held them.
    late: int = 0
    #: Removed before; nothing changed.
    repeated: int = 0
    #: Acknowledged before they are active, which is remembered (R83).
    deferred: int = 0
    #: Matched, and left alone: leased to somebody else under strict leasing, or of an at-most-once queue.
    skipped: int = 0
    #: Went back with a cancelled message of their key that stands before them, whatever was said of them.
    behind: int = 0


def settle(turn: Turn, outcomes: Iterable[OutcomeOf]) -> SettledCounts:
    """Settle the listed messages, all of them or none.

    What came under a lease is staged before its proof; after it, it acts while that lease holds it; later only an acknowledge is
    accepted. Somebody who holds no lease acts at once.
    """
    outcomes = tuple(outcomes)
    check_outcomes(turn, outcomes, turn.ledger.entered, "never entered the queue")
    refuse_barriers(turn, outcomes)
    counts = SettledCounts()
    if turn.ledger.definition.at_most_once:
        # R40: these messages are gone already; the proof of their batch frees the backlog (R17).
        counts.repeated = sum(len(each.rows) for each in outcomes)
        return counts
    plans = [_plan(turn, each) for each in outcomes]
    for lease, staged, _ in plans:
        if lease is not None:
            stage(turn, lease, (staged,))
        _count(counts, staged.outcome, len(staged.rows))
    _settle_now(turn, [(now, lease) for lease, _, now in plans], counts)
    return counts


def settle_where(turn: Turn, where: str, said: OutcomeOf) -> SettledCounts:
    """Say the same of the messages that match a filter, whether or not somebody holds a lease on them (R37).

    Of a queue with a target depth only the active part is looked at. Strict leasing leaves alone what is leased (R38). A cancel
    finds leased messages only: the others are in the queue already.
    """
    ledger = turn.ledger
    leased = ledger.rows[State.LEASED]
    rows = turn.matching(where, leased.copy() if said.outcome == Outcome.CANCEL else in_queue(turn, ledger.entered))
    counts = SettledCounts()
    untouched = rows if ledger.definition.at_most_once else rows & leased if ledger.definition.leasing == "strict" else BitMap64()
    counts.skipped = len(untouched)
    _settle_now(turn, [(replace(said, rows=rows - untouched), None)], counts)
    return counts


def purge(turn: Turn, where: str | None) -> tuple[int, int]:
    """Remove what is not leased, active or not, or what of it matches a filter; purged messages are no dead letters (R13).

    Gives how many were removed, and how many leased ones stay.
    """
    leased = turn.ledger.rows[State.LEASED].copy()
    rows = (in_queue(turn, turn.ledger.entered) - leased) | turn.ledger.rows[State.INACTIVE]
    if where is not None:
        rows, leased = turn.matching(where, rows), turn.matching(where, leased)
    remove(turn, rows, Removal.PURGED)
    return len(rows), len(leased)


def _plan(turn: Turn, each: OutcomeOf) -> tuple[Lease | None, OutcomeOf, OutcomeOf]:
    """Give the lease that an outcome speaks of, what of it is staged there, and what acts at once; refuse what is not allowed."""
    lease = None if each.lease is None else turn.ledger.leases.get(each.lease)
    staged = BitMap64()
    if lease is not None and not lease.proven:
        check_outcomes(turn, (each,), lease.rows, f"are not in lease {lease.number}")
        # What somebody else has taken from the lease is settled as after its end.
        staged = each.rows & lease.claim
    now = replace(each, rows=each.rows - staged)
    _check_permitted(turn, now, lease)
    return lease, replace(each, rows=staged), now


def _check_permitted(turn: Turn, each: OutcomeOf, lease: Lease | None) -> None:
    """Refuse what is too late for anything but an acknowledge, and what strict leasing forbids (R38)."""
    ledger = turn.ledger
    rows = in_queue(turn, each.rows)
    held = BitMap64() if lease is None else rows & lease.held
    if each.outcome != Outcome.ACKNOWLEDGE:
        allowed = held if each.lease is not None else rows & ledger.rows[State.LEASED]
        if each.outcome == Outcome.EXPIRE and each.lease is None:
            allowed = rows
        _refuse(turn, replace(each, rows=each.rows - allowed))
    if ledger.definition.leasing == "strict":
        _check_holder(turn, (rows & ledger.rows[State.LEASED]) - held)


def _refuse(turn: Turn, each: OutcomeOf) -> None:
    """Refuse an outcome, if it has rows, by what became of the first of them."""
    ledger = turn.ledger
    known = ledger.delivered.at_least(1, each.rows) | BitMap64.union(BitMap64(), *(lease.rows for lease in ledger.leases.values()))
    still, take = "Only 'acknowledge' is still accepted.", "Acknowledge or expire them, or leave them out."
    cases = [
        (ledger.rows[State.INACTIVE], "they are not active yet", "Only 'acknowledge' is accepted, for when their turn comes."),
        (ledger.rows[State.DEAD], "they are dead letters", "Redrive them, or leave them out."),
        (ledger.rows[State.REMOVED], "they have left the queue", "Leave them out."),
    ]  # fmt: skip
    if each.lease is not None:
        cases.append((each.rows, "the lease that delivered them is over", still))
    cases += [
        (ledger.rows[State.DELAYED], "they are not leased, but wait for their retry", take),
        (known, "they are not leased any more, and are back in the queue", take),
        (each.rows, "they were never leased, so there is nothing to give back", take),
    ]
    for rows, reason, next_step in cases:
        part = each.rows & rows
        if part and each.rows.min() in part:
            facts = {"count": len(part), "bookmark": part.min(), "outcome": each.outcome, "reason": reason}
            raise LeaseError("LEASE_SETTLED", queue=ledger.definition.name, next_step=next_step, **facts)


def _check_holder(turn: Turn, foreign: BitMap64) -> None:
    for lease in turn.ledger.leases.values():
        if lease.held.intersect(foreign):
            first = (lease.held & foreign).min()
            name, until = turn.ledger.definition.name, datetime.fromtimestamp(lease.due_at_ms / 1_000, UTC).isoformat()
            raise LeaseError("LEASE_HELD", bookmark=first, queue=name, holder=lease.subscription, leased_until=until)


def _settle_now(turn: Turn, plans: Collection[tuple[OutcomeOf, Lease | None]], counts: SettledCounts) -> None:
    """Let outcomes act, each by the lease under which it was given; what stands behind a cancelled message has none."""
    behind = BitMap64()
    for each, lease in plans:
        if each.outcome == Outcome.CANCEL:
            behind |= give_back_followers(turn, each.rows, turn.ledger.rows[State.LEASED], lease=lease)
    counts.behind = len(behind)
    for each, lease in plans:
        _act(turn, replace(each, rows=each.rows - behind), lease, counts)


def _act(turn: Turn, each: OutcomeOf, lease: Lease | None, counts: SettledCounts) -> None:
    rows, inactive = in_queue(turn, each.rows), each.rows & turn.ledger.rows[State.INACTIVE]
    counts.repeated += len(each.rows) - len(rows) - len(inactive)
    if inactive:
        until_ms = turn.now_ms + turn.ledger.definition.deferred_ack_expiration_ms
        turn.emit(Kind.DEFERRED, inactive, due_at_ms=until_ms)
        counts.deferred += len(inactive)
    if each.lease is not None:
        counts.late += len(rows) - (0 if lease is None else len(rows & lease.held))
    # A lease that is named for what it never had is not the one that its records name.
    inside = BitMap64() if lease is None else rows & lease.rows
    for part, of in ((inside, lease), (rows - inside, None)):
        if part:
            apply_outcome(turn, (each.outcome, each.due_at_ms, each.error_text), part, lease=of)
    _count(counts, each.outcome, len(rows))


def _count(counts: SettledCounts, outcome: Outcome, messages: int) -> None:
    match outcome:
        case Outcome.ACKNOWLEDGE:
            counts.acknowledged += messages
        case Outcome.CANCEL:
            counts.cancelled += messages
        case Outcome.EXPIRE:
            counts.expired += messages
