"""Receivers: consumers without Spark, which settle each message by a call of its own (R131 to R140, DESIGN 7).

A receiver is one start of a subscription. It has any number of leases open at once, and nothing of them is ever proven or resumed:
to settle is the proof. What it had when it ended without a word goes back as if never delivered, and marked; a message that was
marked twice is granted alone, so that one that kills its receiver takes no other message with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.commands import Leave, Next, OutcomeRows, Renew, SettleHeld
from spark_queue.core.deciding.barrier import pending
from spark_queue.core.deciding.granting import grant, granted
from spark_queue.core.deciding.isolation import confirm
from spark_queue.core.deciding.outcomes import check_outcomes, read_outcome, read_rows
from spark_queue.core.deciding.planners import end_subscription
from spark_queue.core.deciding.session import Session
from spark_queue.core.deciding.settlement import (
    apply_verdict,
    end_lease,
    give_back,
    give_back_followers,
    give_back_lone,
    prove,
    settleable,
)
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import RUN_FAILED, RUN_STOPPED, Outcome, Return, TooLate
from spark_queue.core.replies import Granted, HeldSettled, RefusedRows, Renewed
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.subscription import Subscription
from spark_queue.core.state.verdict import Verdict
from spark_queue.errors import CallerError


def begin_kind(work: UnitOfWork, known: Subscription | None, *, receives: bool) -> Subscription | None:
    """Return a subscription as a stream or a receiver may have it, which ends what an earlier start of the name had (R137).

    A receiver's subscription is no stream's: where one begins as the other, it ends, and begins anew.
    """
    if known is None:
        return None
    if known.receives != receives:
        end_subscription(work, known, reason="kind")
        return None
    if receives:
        for lease in _leases(work, known):
            _end(work, lease, Return.DISCONNECTED)
    return known


def next_of_receiver(work: UnitOfWork, subscription: Subscription, session: Session, command: Next) -> Granted | None:
    """Grant a receiver more messages; a lease that it does not know of yet is given again, since its reply was lost (R135).

    It must know by which semantics: at most once, messages that it lets go of are gone.
    """
    if command.at_most_once not in (None, work.ledger.definition.at_most_once):
        raise CallerError("SEMANTICS_CHANGED", queue=command.queue, subscription=subscription.name)
    in_hand = work.ledger.leases_in_hand(subscription, newest=subscription.lease)
    lease = next((each for each in in_hand if each.number > command.finished), None)
    awaits_barrier = bool(in_hand and pending(subscription))
    if lease is None and (awaits_barrier or any(each.is_barrier or work.ledger.dying(each.leased) for each in in_hand)):
        # Beside a barrier, and beside a message that may kill its receiver, nothing else is in hand.
        return None
    if lease is None:
        lease = grant(work, subscription, session, call=command.call, limit=command.limit)
    elif not work.may_grant():
        return None
    if lease is None:
        return None
    return granted(work, lease, alone=len(lease.rows) == 1 and bool(work.ledger.dying(lease.rows)))


def renew_held(work: UnitOfWork, subscription: Subscription, command: Renew) -> Renewed:
    """Extend all that a receiver has in hand, by one record, and tell which of its leases stand (R136)."""
    queue = work.ledger.definition
    if command.incarnation != subscription.incarnation:
        return Renewed(lease_period_ms=queue.lease_period_ms)
    work.sessions.heard_at_ms[subscription.name] = work.now_ms
    in_hand = [each for each in work.ledger.leases_in_hand(subscription, newest=command.lease) if not each.is_barrier]
    due_at_ms = work.now_ms + queue.lease_period_ms
    if any(not each.confirmed or each.due_at_ms < due_at_ms for each in in_hand):
        renewed = records.Renewed(incarnation=command.incarnation, newest=command.lease)
        work.emit(renewed, subscription=subscription.name, due_at_ms=due_at_ms, reason="renewal")
    standing = tuple((each.number, each.due_at_ms - work.now_ms) for each in in_hand)
    return Renewed(lease_period_ms=queue.lease_period_ms, leases=standing)


def give_back_held(work: UnitOfWork, subscription: Subscription, command: Leave) -> None:
    """Give back what a receiver has in hand as it ends; what it had not begun counts no delivery (R137, P6)."""
    if command.incarnation != subscription.incarnation or subscription.left:
        return
    queue = work.ledger.definition.name
    begun, kept = (read_rows(work.state, queue, ranges) for ranges in (command.begun, command.keeps))
    for lease in _leases(work, subscription):
        back = lease.leased - kept
        for rows, undelivered in ((back & begun, False), (back - begun, True)):
            if rows:
                give_back(work, rows, Return.DISCONNECTED, lease=lease, returned=records.Returned(undelivered=undelivered))
        if not kept:
            _end(work, lease, Return.DISCONNECTED)
    if kept:
        return
    work.emit(records.Left(incarnation=command.incarnation), subscription=subscription.name, reason="left")
    if subscription.ends:
        end_subscription(work, subscription, reason="left")


def settle_held(work: UnitOfWork, command: SettleHeld) -> HeldSettled:
    """Settle messages that a receiver had, each by itself; an outcome that comes too late refuses no other (R132, R133)."""
    ledger = work.ledger
    given = [(*read_outcome(work, each), each) for each in command.outcomes]
    check_outcomes(work, ((verdict, rows) for verdict, rows, _ in given), ledger.entered, "never entered the queue")
    # Before anything is recorded: to find what is hidden from the caller a file may have to be read, and it may be gone.
    told = work.visible_to_caller(BitMap64.union(BitMap64(), *(rows for _, rows, _ in given)))
    known = ledger.subscriptions.get(command.subscription)
    if known is not None:
        work.sessions.heard_at_ms[known.name] = work.now_ms
    parts = [(verdict, rows, said, _lease_of(work, command.subscription, said)) for verdict, rows, said in given]
    for verdict, rows, _, lease in parts:
        _check_barrier(work, verdict, rows, lease)
    behind = BitMap64() if known is None else _give_back_behind(work, known, parts)
    refused: list[RefusedRows] = []
    for verdict, rows, said, lease in parts:
        settled = _settle(work, lease, verdict, rows - behind, failed=said.failed)
        refused += _refuse(work, command.subscription, said, rows - settled, behind=behind, told=told)
    return HeldSettled(refused=tuple(refused))


def settled_held_before(state: JournalState, command: SettleHeld) -> HeldSettled:
    """Answer a call that took effect before as it was answered, refusals too (R134)."""
    return HeldSettled(refused=tuple(state.refused_of(command.request)))


_Part = tuple[Verdict, BitMap64, OutcomeRows, Lease | None]


def _leases(work: UnitOfWork, subscription: Subscription) -> list[Lease]:
    return work.ledger.leases_of(subscription.name)


def _lease_of(work: UnitOfWork, subscription: str, said: OutcomeRows) -> Lease | None:
    """Return the lease that an outcome names; None where it is not this receiver's, or a stream's, whose proof settles it."""
    lease = work.ledger.leases.get(said.lease or 0)
    return lease if lease is not None and lease.subscription == subscription and work.ledger.receives(subscription) else None


def _end(work: UnitOfWork, lease: Lease, reason: Return) -> None:
    """End a lease of a receiver that is gone, whatever it holds."""
    if lease.is_barrier:
        if not lease.proven:
            # It is its subscription's still, and comes again.
            work.emit(records.Outcomes(cancel=True), of=lease, reason=RUN_STOPPED)
            prove(work, lease, acknowledges=False)
        return
    end_lease(work, lease, reason)
    if work.ledger.outstanding(lease):
        # At most once: nothing comes back.
        work.emit(records.Lapsed(), lease.rows, of=lease)


def _check_barrier(work: UnitOfWork, verdict: Verdict, rows: BitMap64, lease: Lease | None) -> None:
    """Refuse to expire a barrier: it ends only by being received (R71)."""
    if lease is not None and lease.is_barrier and verdict.outcome == Outcome.EXPIRE:
        reason, next_step = f"bookmark {rows.min()} is a barrier, which nobody can expire.", "Acknowledge it, or cancel it."
        raise CallerError("OUTCOME_INVALID", queue=work.ledger.definition.name, reason=reason, next_step=next_step)


def _give_back_behind(work: UnitOfWork, subscription: Subscription, parts: list[_Part]) -> BitMap64:
    """Give back all that a receiver holds behind the messages that it cancels, of their keys; returns these (R139)."""
    if work.ledger.definition.order_key is None:
        return BitMap64()
    cancels = (
        rows & lease.leased
        for verdict, rows, _, lease in parts
        if lease is not None and not lease.is_barrier and verdict.outcome == Outcome.CANCEL
    )
    cancelled, leases = BitMap64.union(BitMap64(), *cancels), _leases(work, subscription)
    held = BitMap64.union(BitMap64(), *(each.leased for each in leases))
    # Also behind one that its cancel ends, which holds up nobody: the receiver has let go of them when it said so.
    behind = work.ledger.selection.order_keys.followers(cancelled, held)
    for lease in leases:
        if rows := behind & lease.leased:
            give_back_followers(work, rows, lease=lease)
    return behind


def _settle(work: UnitOfWork, lease: Lease | None, verdict: Verdict, rows: BitMap64, *, failed: bool) -> BitMap64:
    """Let an outcome act on those of some messages on which it is not too late; returns these."""
    if lease is not None and lease.is_barrier:
        return _settle_barrier(work, lease, verdict, rows)
    if work.ledger.definition.at_most_once:
        # They are gone since they were granted: whatever is said of them frees their backlog and their keys, and nothing is late,
        # also under a lease that is over and forgotten (R40).
        if lease is not None and (done := rows & work.ledger.outstanding(lease)):
            work.emit(records.Outcomes(final=True), done, of=lease, reason=verdict.outcome)
        # What was given back before the queue had these semantics is there still.
        return rows & work.ledger.rows[State.REMOVED] - work.ledger.barriers
    if lease is None:
        return BitMap64()
    subscription = work.ledger.subscriptions[lease.subscription]
    is_acknowledged = verdict.outcome == Outcome.ACKNOWLEDGE
    rows = rows & (settleable(work, lease) if is_acknowledged else lease.leased)
    if not rows:
        return rows
    if is_acknowledged:
        confirm(work, subscription)
    if not (failed and verdict.outcome == Outcome.CANCEL):
        apply_verdict(work, verdict, rows, lease=lease)
        return rows
    for row in rows:
        give_back_lone(work, lease, BitMap64([row]), Return.CANCELLED, error=verdict.error or "its function failed")
    return rows


def _settle_barrier(work: UnitOfWork, lease: Lease, verdict: Verdict, rows: BitMap64) -> BitMap64:
    """Let a barrier be received, or come again (R140)."""
    rows = rows & lease.rows
    if not rows or lease.proven:
        return BitMap64()
    if verdict.outcome == Outcome.CANCEL:
        work.emit(records.Outcomes(error=verdict.error or "it was cancelled", cancel=True), of=lease, reason=RUN_FAILED)
    prove(work, lease, acknowledges=False)
    return rows


def _refuse(
    work: UnitOfWork, subscription: str, said: OutcomeRows, rows: BitMap64, *, behind: BitMap64, told: BitMap64
) -> Iterator[RefusedRows]:
    """Record of which messages an outcome came too late, and why: a repeat of the call hears the same (R134).

    Of messages beside those `told`, which are hidden from the caller, nothing is said but that they are no longer its own (R12).
    """
    fates = list(_fates(work, rows & told, behind))
    if hidden := rows - told:
        fates.append((TooLate.REMOVED, None, hidden))
    for reason, holder, part in fates:
        refused = RefusedRows(lease=said.lease or 0, ranges=tuple(to_ranges(part)), reason=reason, holder=holder)
        body = records.Refused(outcome=said.outcome, holder=holder)
        work.emit(body, part, subscription=subscription, lease=refused.lease, reason=reason)
        yield refused


def _fates(work: UnitOfWork, rows: BitMap64, behind: BitMap64) -> Iterator[tuple[TooLate, str | None, BitMap64]]:
    """Yield some messages in parts, by what has become of them, and the subscription that has them."""
    ledger = work.ledger
    if late := rows & behind:
        yield TooLate.BEHIND, None, late
    rows = rows - behind
    for lease in ledger.leases.values() if rows else ():
        if held := rows & lease.leased:
            yield TooLate.LEASED, lease.subscription, held
            rows = rows - held
    for reason, state in ((TooLate.REMOVED, State.REMOVED), (TooLate.DEAD_LETTER, State.DEAD), (TooLate.REMOTE, State.REMOTE)):
        if found := rows & ledger.rows[state]:
            yield reason, None, found
            rows = rows - found
    if rows:
        yield TooLate.RETURNED, None, rows
