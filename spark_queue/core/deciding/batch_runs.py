"""Runs of the batch function: it starts and ends, and its proof arrives (P4, P5)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.commands import ERROR_TEXT_LIMIT, EndRun, Prove, StartRun
from spark_queue.core.deciding.outcomes import check_outcomes, read_outcome, refuse_barriers, stage
from spark_queue.core.deciding.settlement import prove, settle_early
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import RUN_FAILED, RUN_STOPPED, AckMode, Incarnation, Outcome
from spark_queue.core.replies import Done, Run, RunStarted, SinkTold
from spark_queue.core.state.in_doubt import attempt_summary, fenced_refusal, in_doubt, refusal
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.subscription import Subscription
from spark_queue.errors import CallerError, LeaseError


def is_handed_over_once(work: UnitOfWork, lease: Lease) -> bool:
    """Return whether only the first planner start that asks gets the rows (R16); a barrier is everybody's until its proof."""
    return work.ledger.definition.at_most_once and not lease.is_barrier


def start_run(work: UnitOfWork, command: StartRun) -> RunStarted:
    """Note that fn begins, and return the planner start and the lease that it speaks for (P4)."""
    subscription = work.subscription(command.subscription)
    refuse_receiver(work, subscription, "a batch function")
    lease = work.ledger.open_lease(subscription)
    if command.sink:
        refuse_unsuited(work, subscription)
    if lease is not None and lease.is_in_doubt and not command.sink:
        raise refusal(work.ledger, lease, "running its batch without the sink")
    session = work.sessions.of(subscription.name, subscription.incarnation)
    session.started = 0 if lease is None else lease.number
    # fn has them: of a planner that dies at once nobody may hear that they were taken.
    session.note_read(session.started)
    work.sessions.keep(subscription.name, session)
    return RunStarted(
        run=Run(incarnation=subscription.incarnation, lease=session.started),
        ack_mode=subscription.ack_mode,
        is_barrier=lease is not None and lease.is_barrier and bool(lease.rows),
        messages=0 if lease is None else len(_read_by(work, lease, subscription.incarnation)),
        sink=_sink_told(work, subscription, lease) if command.sink else None,
    )


def _read_by(work: UnitOfWork, lease: Lease, incarnation: Incarnation) -> BitMap64:
    """Return the rows that the batch of a lease reads in the newest planner start."""
    return BitMap64() if is_handed_over_once(work, lease) and lease.handed_to != incarnation else lease.rows


def refuse_receiver(work: UnitOfWork, subscription: Subscription, what: str) -> None:
    """Refuse a call of a stream for the subscription of a receiver, which proves nothing (R131)."""
    if subscription.receives:
        needed, queue = f"{AckMode.AUTO} or {AckMode.EXPLICIT}", work.ledger.definition.name
        facts = {"subscription": subscription.name, "queue": queue, "ack_mode": subscription.ack_mode, "what": what}
        raise CallerError("ACK_MODE_MISMATCH", **facts, needed=needed, next_step="Give the stream a subscription of its own.")


def refuse_unsuited(work: UnitOfWork, subscription: Subscription) -> None:
    """Refuse to append to a sink where its commit cannot be the acknowledgement."""
    if work.ledger.definition.at_most_once:
        raise no_sink(work, "it delivers at most once, and acknowledges nothing.", "Use foreach_batch there.")
    if subscription.ack_mode != AckMode.AUTO:
        raise no_sink(work, "its rows are acknowledged by hand, under ackMode explicit.", "Leave option ackMode out.")


def no_sink(work: UnitOfWork, reason: str, next_step: str) -> CallerError:
    """Return why a batch cannot be appended to a sink."""
    what = f"Appending batches of queue '{work.ledger.definition.name}' to a sink"
    return CallerError("UNSUPPORTED_WRITE", what=what, reason=reason, next_step=next_step)


def refuse_fenced(work: UnitOfWork, lease: Lease, run: Run) -> None:
    """Refuse every call of a run with a fenced attempt: it is over."""
    if lease.fenced is not None and lease.fenced.incarnation == run.incarnation:
        raise fenced_refusal(work.ledger, lease.subscription, lease.fenced.number)


def _sink_told(work: UnitOfWork, subscription: Subscription, lease: Lease | None) -> SinkTold:
    """Return the facts for a run that appends: the attempts in doubt, as far as it may decide about them (R125)."""
    others = (
        attempt_summary(each)
        for each in in_doubt(work.ledger)
        if each.subscription != subscription.name
        and each.due_at_ms <= work.now_ms
        and work.ledger.subscriptions[each.subscription].principal == subscription.principal
    )
    return SinkTold(
        messages=0 if lease is None or lease.is_barrier or lease.has_landed else len(lease.rows),
        own=next(map(attempt_summary, in_doubt(work.ledger, subscription.name)), None),
        others=tuple(others),
    )


def end_run(work: UnitOfWork, command: EndRun) -> Done:
    """Note that fn ended: stage its outcomes, or its failure; with `settle` they take effect at once.

    With `cancel` the batch is done for Spark, and its proof gives its rows back.
    """
    given = [read_outcome(work, each) for each in command.outcomes]
    subscription = work.subscription(command.subscription)
    lease = lease_of_run(work, subscription, command.run)
    if lease is None or not lease.rows:
        check_outcomes(work, () if lease is None else given, BitMap64(), "are not in the batch")
        _end_idle_run(work, subscription, command)
        return Done()
    if command.stopped:
        # Also of a run that was fenced, or is in doubt: it changes nothing but what is held against its messages later.
        work.emit(records.Outcomes(cancel=command.cancel), of=lease, reason=RUN_STOPPED)
        if command.cancel:
            work.sessions.of(subscription.name, command.run.incarnation).returned = lease.number
        return Done()
    refuse_fenced(work, lease, command.run)
    if lease.is_in_doubt or (lease.has_landed and (given or command.cancel)):
        raise refusal(work.ledger, lease, "an outcome from its run")
    check_outcomes(work, given, lease.rows, "are not in the batch")
    if not command.cancel:
        refuse_barriers(work, given)
    if command.error is not None:
        failed = records.Outcomes(error=command.error[:ERROR_TEXT_LIMIT], cancel=command.cancel)
        work.emit(failed, of=lease, reason=RUN_FAILED)
    stage(work, lease, given)
    if command.error is None or command.cancel:
        work.sessions.of(subscription.name, command.run.incarnation).returned = lease.number
        if command.settle:
            settle_early(work, lease)
    return Done()


def _end_idle_run(work: UnitOfWork, subscription: Subscription, command: EndRun) -> None:
    """Note how a run ended that had no messages, where that is news: a failure, and the first success after one."""
    if command.error is not None and not command.stopped:
        failed = records.Outcomes(error=command.error[:ERROR_TEXT_LIMIT])
        work.emit(failed, subscription=subscription.name, reason=RUN_FAILED)
    elif subscription.idle_failures and not command.stopped:
        work.emit(records.Outcomes(), subscription=subscription.name, reason=Outcome.ACKNOWLEDGE)


def prove_run(work: UnitOfWork, command: Prove) -> Done:
    """Accept the listener's word that Spark committed a batch; a repeat changes nothing."""
    subscription = work.subscription(command.subscription)
    newest = work.ledger.leases.get(subscription.lease)
    if command.run.lease >= subscription.lease and newest is not None and not newest.proven:
        lease = lease_of_run(work, subscription, command.run)
        if lease is not None:
            refuse_fenced(work, lease, command.run)
            prove(work, lease, acknowledges=subscription.ack_mode == AckMode.AUTO)
    return Done()


def lease_of_run(work: UnitOfWork, subscription: Subscription, run: Run) -> Lease | None:
    """Return the open lease that a run speaks for; None for the batch without a lease."""
    refuse_receiver(work, subscription, "a batch function")
    if run.incarnation != subscription.incarnation:
        reason = f"a newer reader, incarnation {list(subscription.incarnation)}, took the subscription over"
    elif run.lease == 0:
        return None
    else:
        lease = work.ledger.open_lease(subscription)
        if lease is not None and lease.number == run.lease:
            return lease
        reason = f"that lease is settled, and the newest is {subscription.lease}"
    raise stale_run(work, run, subscription.name, reason)


def stale_run(work: UnitOfWork, run: Run, subscription: str, reason: str) -> LeaseError:
    """Return why a run is not the current one (P4)."""
    speaks = f"{list(run.incarnation)} of lease {run.lease}"
    return LeaseError("STALE_RUN", subscription=subscription, queue=work.ledger.definition.name, run=speaks, reason=reason)
