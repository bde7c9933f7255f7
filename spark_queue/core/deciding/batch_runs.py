"""What a batch says: fn starts and ends, and the listener's proof (P4, P5, P6)."""

from __future__ import annotations

from spark_queue.core.commands import EndRun, Prove, StartRun
from spark_queue.core.deciding.delivery import AUTO
from spark_queue.core.deciding.outcomes import ERROR_TEXT_LIMIT, check_outcomes, read_outcome, refuse_barriers, stage
from spark_queue.core.deciding.settlement import prove, settle_early
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import RUN_FAILED, Kind
from spark_queue.core.replies import Done, Run, RunStarted
from spark_queue.core.state.lease import Lease, Subscription
from spark_queue.errors import LeaseError


def start_run(work: UnitOfWork, command: StartRun) -> RunStarted:
    """Note that fn begins, and tell which planner start and which lease it speaks for (P4)."""
    subscription = work.subscription(command.subscription)
    lease = work.ledger.open_lease(subscription)
    session = work.sessions.of(subscription.name, subscription.incarnation)
    session.started = 0 if lease is None else lease.number
    work.sessions.keep(subscription.name, session)
    return RunStarted(
        run=Run(incarnation=subscription.incarnation, lease=session.started),
        ack_mode=subscription.ack_mode,
        is_barrier=lease is not None and lease.is_barrier and bool(lease.rows),
    )


def end_run(work: UnitOfWork, command: EndRun) -> Done:
    """Note that fn ended: stage its outcomes, or its failure; with `settle` they take effect at once.

    With `cancel` Spark takes the batch for done, and its proof gives its rows back.
    """
    given = [read_outcome(work, each) for each in command.outcomes]
    subscription = work.subscription(command.subscription)
    lease = _lease_of_run(work, subscription, command.run)
    if lease is None:
        return Done()
    check_outcomes(work, given, lease.rows, "are not in the batch")
    if not command.cancel:
        refuse_barriers(work, given)
    if command.error is not None:
        detail = {"error": command.error[:ERROR_TEXT_LIMIT]} | ({"cancel": True} if command.cancel else {})
        work.emit(Kind.OUTCOMES, of=lease, reason=RUN_FAILED, detail=detail)
    stage(work, lease, given)
    if command.error is None or command.cancel:
        work.sessions.of(subscription.name, command.run.incarnation).returned = lease.number
        if command.settle:
            settle_early(work, lease)
    return Done()


def prove_run(work: UnitOfWork, command: Prove) -> Done:
    """Take the listener's word that Spark committed a batch; said before, it changes nothing."""
    subscription = work.subscription(command.subscription)
    newest = work.ledger.leases.get(subscription.lease)
    if command.run.lease >= subscription.lease and newest is not None and not newest.proven:
        lease = _lease_of_run(work, subscription, command.run)
        if lease is not None:
            prove(work, lease, acknowledges=subscription.ack_mode == AUTO)
    return Done()


def _lease_of_run(work: UnitOfWork, subscription: Subscription, run: Run) -> Lease | None:
    """Return the open lease that a run speaks for; None for the batch without a lease."""
    if run.incarnation != subscription.incarnation:
        reason = f"a newer reader, incarnation {list(subscription.incarnation)}, took the subscription over"
    elif run.lease == 0:
        return None
    else:
        lease = work.ledger.open_lease(subscription)
        if lease is not None and lease.number == run.lease:
            return lease
        reason = f"that lease is settled, and the newest is {subscription.lease}"
    speaks = f"{list(run.incarnation)} of lease {run.lease}"
    raise LeaseError("STALE_RUN", subscription=subscription.name, queue=work.ledger.definition.name, run=speaks, reason=reason)
