"""Answers to planners: to attach, for the next lease, for a lease's rows, to renew, to leave (DESIGN 7, P1 to P6).

Whose a subscription is, what its principal may read, and its end (R12, R47, R118).
What a batch says: fn starts and ends, and the listener's proof (P4, P5, P6).
"""

from __future__ import annotations

from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import oldest
from spark_queue.core.commands import (
    Attach,
    DrawIncarnation,
    EndRun,
    Leave,
    Next,
    PlannerCommand,
    Prove,
    Renew,
    Rows,
    StartRun,
    Unsubscribe,
)
from spark_queue.core.deciding.barrier import give_up, is_spent, release
from spark_queue.core.deciding.granting import grant
from spark_queue.core.deciding.isolation import isolate
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.settlement import (
    ERROR_TEXT_LIMIT,
    check_outcomes,
    end_lease,
    give_back_failed,
    in_queue,
    prove,
    read_outcome,
    refuse_barriers,
    settle_early,
    stage,
)
from spark_queue.core.deciding.unit_of_work import Session, UnitOfWork
from spark_queue.core.definitions.keys import valid_name
from spark_queue.core.records import HIDDEN, RUN_FAILED, RUN_STOPPED, Incarnation, Kind, Outcome, Removal, Return
from spark_queue.core.replies import Done, Drawn, Granted, LeasedRows, Renewed, RowsOf, Run, RunStarted, SinkTold
from spark_queue.core.state.attempt import fenced_refusal, in_doubt, refusal, told
from spark_queue.core.state.lease import Lease, Subscription
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import CallerError, ConfigError, LeaseError


def belonging(principal: str, entitlement: tuple[str, ...]) -> dict[str, Any]:
    """Return what a `subscribed` record says of whose the subscription is."""
    return {"principal": principal, "entitlement": entitlement}


def hand_to_caller(work: UnitOfWork, known: Subscription | None) -> Subscription | None:
    """Return a subscription as who attaches may have it.

    One of before there were principals, or of one that is gone, may hold what is hidden from the new one: it ends, and begins
    anew.
    """
    if known is None or work.caller is None or known.principal == work.caller.principal or not work.row_filters():
        return known
    end_subscription(work, known, reason="principal")
    return None


def renew_entitlements(work: UnitOfWork) -> None:
    """Let new definitions say what the principals of subscriptions may read from now on; what is leased stays leased."""
    definitions, queue = work.state.definitions, work.ledger.definition.name
    if work.ledger.definition.underlying_topic is None:
        # No filter is evaluated in a dead-letter queue: whoever has one is given nothing there.
        return
    for each in list(work.ledger.subscriptions.values()):
        entitlement = definitions.row_filters(each.principal, queue)
        if each.principal is not None and entitlement != each.entitlement:
            asked = {"ack_mode": each.ack_mode, "max_backlog": each.max_backlog, "filter": each.filter}
            work.emit(Kind.SUBSCRIBED, subscription=each.name, detail=asked | belonging(each.principal, entitlement))
            if queue in work.state.troubles:
                # A file that the filter would have to read is not whole.
                return
            _let_go_of_hidden_barriers(work, each)


def _let_go_of_hidden_barriers(work: UnitOfWork, subscription: Subscription) -> None:
    """Take released barriers from a subscription that its principal may not see any more, so that what is behind them goes on."""
    lease = work.ledger.open_lease(subscription)
    seen = waiting = subscription.barriers - (BitMap64() if lease is None else lease.rows)
    for text in subscription.entitlement:
        seen = work.matching(text, seen)
    if hidden := waiting - seen:
        detail = {"deliveries": subscription.barrier_deliveries}
        work.emit(Kind.BARRIER_RECEIVED, hidden, subscription=subscription.name, reason=HIDDEN, detail=detail)


def end_subscription(work: UnitOfWork, subscription: Subscription, *, reason: str) -> None:
    """End a subscription; what it holds returns. What is in doubt has to be decided first (R123)."""
    for lease in in_doubt(work.ledger, subscription.name):
        raise refusal(work.ledger, lease, "ending the subscription")
    for lease in [lease for lease in work.ledger.leases.values() if lease.subscription == subscription.name]:
        end_lease(work, lease, Return.UNSUBSCRIBED)
    work.emit(Kind.UNSUBSCRIBED, subscription=subscription.name, reason=reason)


#: Runs in a row that end without a report before their batch is halved (DESIGN 8).
VANISHED_RUNS_LIMIT = 3

AUTO = "auto"
EXPLICIT = "explicit"


def draw_incarnation(work: UnitOfWork, _: DrawIncarnation) -> Drawn:
    """Return a planner start its place in the order; records nothing (DESIGN 15.6)."""
    return Drawn(incarnation=work.sessions.draw(work.state.epoch), lease_period_ms=work.ledger.definition.lease_period_ms)


def attach(work: UnitOfWork, command: Attach) -> Done:
    """Make a planner start the owner of a subscription, which begins with its first attach; the newest wins (P1).

    What it asks for replaces what the subscription asked for before, and breaks no lease (R118). What it is given must match its
    filter (R49).
    """
    session = work.sessions.of(command.subscription, command.incarnation)
    _attach(work, command, session)
    session.call = max(session.call, command.call)
    work.sessions.keep(command.subscription, session)
    return Done()


def _attach(work: UnitOfWork, command: Attach, session: Session) -> None:
    name, incarnation, call = command.subscription, command.incarnation, command.call
    _check_name(work, name)
    if command.ack_mode not in (AUTO, EXPLICIT):
        where = f"subscription '{name}'"
        raise ConfigError("BAD_VALUE", key="ackMode", where=where, value=command.ack_mode, expected="auto or explicit")
    if command.filter is not None and work.ledger.definition.underlying_topic is None:
        reason = "messages enter a dead-letter queue by reference only, and no filter is evaluated there."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=f"subscription '{name}'", reason=reason, keys="filter")
    known = work.ledger.subscriptions.get(name)
    if known is not None and incarnation < known.incarnation:
        raise _taken(work, known, incarnation)
    if known is not None and incarnation == known.incarnation:
        _check_call(known, session, call)
        if call == known.call:
            # The reply to this very call was lost; nothing came after it that a second record might undo.
            return
    wanted = {"ack_mode": command.ack_mode, "max_backlog": command.max_backlog, "filter": command.filter}
    work.state.prepare_filters(work.ledger, [text for text in (command.filter, *work.row_filters()) if text is not None])
    known = hand_to_caller(work, known)
    if work.caller is not None and work.caller.principal is not None:
        wanted |= belonging(work.caller.principal, work.row_filters())
    if known is None or any(getattr(known, each) != value for each, value in wanted.items()):
        work.emit(Kind.SUBSCRIBED, subscription=name, detail=wanted)
    detail = {"incarnation": list(incarnation), "call": call}
    if command.available_now:
        detail["until"] = work.state.message_types[work.ledger.definition.message_type].entered_until
    work.emit(Kind.ATTACHED, subscription=name, detail=detail)


def _check_name(work: UnitOfWork, name: str) -> None:
    if not valid_name(name):
        raise ConfigError("NAME_INVALID", what="subscription", name=name)
    clash = next((other for other in work.ledger.subscriptions if other != name and other.lower() == name.lower()), None)
    if clash is not None:
        raise ConfigError("NAME_CASE_CLASH", what="subscription", name=name, other=clash)


def _planner(work: UnitOfWork, command: PlannerCommand) -> tuple[Subscription, Session]:
    """Return who makes a numbered call; refuse a planner that was superseded, and a call that a newer one overtook (P1)."""
    subscription = work.subscription(command.subscription)
    if command.incarnation != subscription.incarnation:
        raise _taken(work, subscription, command.incarnation)
    session = work.sessions.of(subscription.name, command.incarnation)
    work.sessions.keep(subscription.name, session)
    _check_call(subscription, session, command.call)
    work.sessions.heard_at_ms[subscription.name] = work.now_ms
    return subscription, session


def _check_call(subscription: Subscription, session: Session, call: int) -> None:
    newest = max(session.call, subscription.call)
    if call < newest:
        raise LeaseError("STALE_CALL", subscription=subscription.name, call=call, newest=newest)
    session.call = call


def next_lease(work: UnitOfWork, command: Next) -> Granted | None:
    """Prove lease `finished`, and grant the lease to work on now; None when nothing is there.

    An open lease newer than `finished` is given again, since its reply was lost (DESIGN 7).
    """
    subscription, session = _planner(work, command)
    work.shares.note_poll(subscription, limit=command.limit, now_ms=work.now_ms)
    _check_lease_number(work, subscription, command.finished)
    lease = work.ledger.open_lease(subscription)
    if lease is not None and lease.number > command.finished:
        if not work.may_grant():
            return None
        if lease.incarnation != session.incarnation and not (_is_handed_over_once(work, lease) or lease.has_landed):
            rows = resumable(work, lease)
            resume(work, lease, session.incarnation, rows, call=command.call, counted=False, vanished_runs=lease.vanished_runs)
        return granted(work, lease)
    if lease is not None:
        prove(work, lease, acknowledges=subscription.ack_mode == AUTO)
        # What the proof has freed is there for this very call.
        release(work)
    lease = grant(work, subscription, session, call=command.call, limit=command.limit)
    return None if lease is None else granted(work, lease)


def granted(work: UnitOfWork, lease: Lease) -> Granted:
    """Return the reply that gives a lease."""
    period_ms = work.ledger.definition.lease_period_ms
    return Granted(lease=lease.number, messages=len(lease.rows), leased_until_ms=lease.due_at_ms, lease_period_ms=period_ms)


def lease_rows(work: UnitOfWork, command: Rows) -> LeasedRows:
    """Return the rows that the micro-batch of a lease reads, resuming it under a newer planner (P2, P3).

    A settled lease reads as empty. Acts once per incarnation and lease: a repeat gives the same rows and changes nothing.
    """
    subscription, session = _planner(work, command)
    _check_lease_number(work, subscription, command.lease)
    lease, rows = work.ledger.open_lease(subscription), BitMap64()
    if lease is not None and lease.number != command.lease:
        lease = None
    if lease is not None:
        rows = _rows_of(work, lease, session, call=command.call)
    message_type, until_ms = work.ledger.definition.message_type, 0 if lease is None else lease.due_at_ms
    reply = RowsOf(message_type=message_type, lease=command.lease, leased_until_ms=until_ms)
    return LeasedRows(reply=reply, rows=rows, is_barrier=lease is not None and lease.is_barrier)


def _rows_of(work: UnitOfWork, lease: Lease, session: Session, *, call: int) -> BitMap64:
    if _is_handed_over_once(work, lease):
        return _hand_over(work, lease, session, call=call)
    own = lease.incarnation == session.incarnation
    # What has landed is read again as it was, also once it has left the queue, and is no delivery any more (R126).
    is_whole = lease.is_barrier or lease.has_landed or len(lease.leased) == len(lease.rows)
    own = own or lease.has_landed
    if not (own and (session.asked == lease.number or is_whole)):
        _resume_run(work, lease, session, call=call)
    session.asked, session.unasked = lease.number, 0
    return lease.rows


def renew(work: UnitOfWork, command: Renew) -> Renewed:
    """Extend a lease by one period, up to the queue's `lease_renewal_limit`; a superseded planner's renewals are ignored."""
    subscription, queue = work.subscription(command.subscription), work.ledger.definition
    lease = work.ledger.open_lease(subscription)
    is_own = lease is not None and lease.number == command.lease and command.incarnation == subscription.incarnation
    if lease is not None and is_own and work.ledger.outstanding(lease):
        due_at_ms = min(work.now_ms + queue.lease_period_ms, lease.begun_at_ms + queue.lease_renewal_limit_ms)
        if due_at_ms > lease.due_at_ms:
            detail = {"incarnation": list(command.incarnation)}
            work.emit(Kind.RENEWED, of=lease, due_at_ms=due_at_ms, reason="renewal", detail=detail)
    return Renewed(lease_period_ms=queue.lease_period_ms)


def leave(work: UnitOfWork, command: Leave) -> Done:
    """Note that a planner ends; its lease returns at once where its batch cannot have been committed (R19, P6)."""
    subscription = work.subscription(command.subscription)
    if command.incarnation == subscription.incarnation and not subscription.left:
        work.emit(Kind.LEFT, subscription=subscription.name, reason="left", detail={"incarnation": list(command.incarnation)})
        lease, session = work.ledger.open_lease(subscription), work.sessions.of(subscription.name, command.incarnation)
        if lease is not None and lease.attempt is None and session.cannot_be_committed(lease):
            end_lease(work, lease, Return.DISCONNECTED, undelivered=session.unasked == lease.number)
        elif lease is not None and session.returned == lease.number and lease.failure is None and not lease.stopped:
            # fn has got through its batch: whatever kept Spark from committing it, if anything did, it is not the messages.
            work.emit(Kind.OUTCOMES, of=lease, reason=RUN_STOPPED)
    return Done()


def unsubscribe(work: UnitOfWork, command: Unsubscribe) -> Done:
    """End a subscription because somebody says so; what it holds returns."""
    end_subscription(work, work.subscription(command.subscription), reason="user")
    return Done()


def _is_handed_over_once(work: UnitOfWork, lease: Lease) -> bool:
    """Return whether only the first planner start that asks gets the rows (R16); a barrier is everybody's until its proof."""
    return work.ledger.definition.at_most_once and not lease.is_barrier


def _hand_over(work: UnitOfWork, lease: Lease, session: Session, *, call: int) -> BitMap64:
    """Return an at-most-once lease's rows to the first planner start that asks, and to no other (DESIGN 7).

    One that lapsed begins anew with it. Not where others may have gone on with its keys: its rows come too late for their order.
    """
    queue = work.ledger.definition
    if lease.handed_to is None and not (lease.lapsed and queue.order_key is not None):
        due_at_ms = work.now_ms + queue.lease_period_ms if lease.lapsed else None
        work.emit(Kind.CLAIMED, of=lease, due_at_ms=due_at_ms, detail={"incarnation": list(session.incarnation), "call": call})
    return lease.rows if lease.handed_to == session.incarnation else BitMap64()


def _resume_run(work: UnitOfWork, lease: Lease, session: Session, *, call: int) -> None:
    if lease.is_in_doubt:
        # Nothing of it goes back before it is decided; what it reads again is what it may append again (R123).
        resume(work, lease, session.incarnation, lease.leased, call=call, counted=False, vanished_runs=lease.vanished_runs)
        return
    asked_before = session.unasked != lease.number
    rows = resumable(work, lease)
    # Only a run that had nothing but this message says anything about it, and none that was stopped (P3).
    lone = asked_before and not lease.stopped and len(lease.rows) == len(rows) == 1
    vanished_runs = lease.vanished_runs + (not lease.stopped) if asked_before and lease.failure is None else 0
    failed = lease.failure is not None or vanished_runs >= VANISHED_RUNS_LIMIT
    if len(rows) > 1 and failed:
        rows = _halve(work, lease, rows)
        vanished_runs = 0
    maximum = work.ledger.definition.max_deliveries
    if lone and lease.is_barrier and is_spent(work, work.ledger.subscriptions[lease.subscription]):
        give_up(work, lease, error=lease.failure)
        rows = BitMap64()
    elif lone and not lease.is_barrier and (failed or work.ledger.subscriptions[lease.subscription].is_stopped):
        # The batch reads empty, and the next one tries others.
        give_back_failed(work, lease, rows, Return.ISOLATED)
        rows = BitMap64()
    elif lone and maximum and work.ledger.delivered.at_least(maximum, rows):
        # The lone message of a failing batch has used its deliveries: it becomes a dead letter, and the batch reads empty.
        remove(work, rows, Removal.MAX_DELIVERIES, lease=lease, error=lease.failure)
        rows = BitMap64()
    resume(work, lease, session.incarnation, rows, call=call, counted=lone and bool(rows), vanished_runs=vanished_runs)


def resumable(work: UnitOfWork, lease: Lease) -> BitMap64:
    """Return what a resume may cover: what is still held, and what came back and is not held up by its order key (P2).

    What came back and is hidden from its principal by now is not leased to it again (R12).
    A barrier is its subscription's until the proof: nobody else takes it from there.
    """
    if lease.is_barrier:
        return lease.rows & work.ledger.subscriptions[lease.subscription].barriers
    # What somebody cancelled by hand, to be delivered later, is not delivered sooner by a restart.
    later = work.ledger.rows[State.DELAYED] - work.ledger.due(work.now_ms)
    came_back = in_queue(work, lease.recoverable) - lease.leased - later
    came_back = work.entitled(work.ledger.subscriptions[lease.subscription], came_back) if work.may_grant() else BitMap64()
    return lease.leased | work.ledger.selection.order_keys.together(came_back, lease.leased)


def _halve(work: UnitOfWork, lease: Lease, rows: BitMap64) -> BitMap64:
    """Give back the younger half of a failing batch, and what is left of it (DESIGN 8, isolation)."""
    kept = oldest(rows, (len(rows) + 1) // 2)
    isolate(work, lease, rows - kept)
    return kept


def resume(
    work: UnitOfWork, lease: Lease, incarnation: Incarnation, rows: BitMap64, *, call: int, counted: bool, vanished_runs: int
) -> None:
    """Let a lease be `rows` from now on, for a planner start (P2)."""
    work.emit(
        Kind.RESUMED,
        rows,
        of=lease,
        due_at_ms=work.now_ms + work.ledger.definition.lease_period_ms,
        detail={
            "incarnation": list(incarnation),
            "call": call,
            # What came back undelivered was not counted when it was granted.
            "counted": counted or lease.undelivered,
            "vanished_runs": vanished_runs,
        }
        | ({"barrier": True} if lease.is_barrier else {}),
    )


def _check_lease_number(work: UnitOfWork, subscription: Subscription, number: int) -> None:
    queue, newest = work.ledger.definition.name, work.ledger.next_lease - 1
    if number > newest:
        expected = f"a lease of this queue, which has granted {newest}"
        raise LeaseError("CHECKPOINT_FOREIGN", what=f"lease {number} of queue '{queue}'", expected=expected)
    if 0 < subscription.lease < number:
        expected = f"a lease of subscription '{subscription.name}', whose newest is {subscription.lease}"
        raise LeaseError("CHECKPOINT_FOREIGN", what=f"lease {number} of queue '{queue}'", expected=expected)


def _taken(work: UnitOfWork, subscription: Subscription, own: Incarnation) -> LeaseError:
    return LeaseError(
        "SUBSCRIPTION_TAKEN",
        subscription=subscription.name,
        queue=work.ledger.definition.name,
        newest=list(subscription.incarnation),
        own=list(own),
    )


def start_run(work: UnitOfWork, command: StartRun) -> RunStarted:
    """Note that fn begins, and tell which planner start and which lease it speaks for (P4)."""
    subscription = work.subscription(command.subscription)
    lease = work.ledger.open_lease(subscription)
    if command.sink:
        refuse_unsuited(work, subscription)
    if lease is not None and lease.is_in_doubt and not command.sink:
        raise refusal(work.ledger, lease, "running its batch without the sink")
    session = work.sessions.of(subscription.name, subscription.incarnation)
    session.started = 0 if lease is None else lease.number
    work.sessions.keep(subscription.name, session)
    return RunStarted(
        run=Run(incarnation=subscription.incarnation, lease=session.started),
        ack_mode=subscription.ack_mode,
        is_barrier=lease is not None and lease.is_barrier and bool(lease.rows),
        messages=0 if lease is None else len(_read_by(work, lease, subscription.incarnation)),
        sink=_sink_told(work, subscription, lease) if command.sink else None,
    )


def _read_by(work: UnitOfWork, lease: Lease, incarnation: Incarnation) -> BitMap64:
    """Return what the batch of a lease reads in the newest planner start."""
    return BitMap64() if _is_handed_over_once(work, lease) and lease.handed_to != incarnation else lease.rows


def refuse_unsuited(work: UnitOfWork, subscription: Subscription) -> None:
    """Refuse to append to a sink where its commit cannot be the acknowledgement."""
    if work.ledger.definition.at_most_once:
        raise no_sink(work, "it delivers at most once, and acknowledges nothing.", "Use foreach_batch there.")
    if subscription.ack_mode != AUTO:
        raise no_sink(work, "its rows are acknowledged by hand, under ackMode explicit.", "Leave option ackMode out.")


def no_sink(work: UnitOfWork, reason: str, next_step: str) -> CallerError:
    """Return why a batch cannot be appended to a sink."""
    what = f"Appending batches of queue '{work.ledger.definition.name}' to a sink"
    return CallerError("UNSUPPORTED_WRITE", what=what, reason=reason, next_step=next_step)


def refuse_fenced(work: UnitOfWork, lease: Lease, run: Run) -> None:
    """Refuse whatever a run says whose attempt was fenced: it is over."""
    if lease.fenced is not None and lease.fenced.incarnation == run.incarnation:
        raise fenced_refusal(work.ledger, lease.subscription, lease.fenced.number)


def _sink_told(work: UnitOfWork, subscription: Subscription, lease: Lease | None) -> SinkTold:
    """Return what a run has to know that appends: what is in doubt, as far as it may decide about it (R125)."""
    others = (
        told(each)
        for each in in_doubt(work.ledger)
        if each.subscription != subscription.name
        and each.due_at_ms <= work.now_ms
        and work.ledger.subscriptions[each.subscription].principal == subscription.principal
    )
    return SinkTold(
        messages=0 if lease is None or lease.is_barrier or lease.has_landed else len(lease.rows),
        own=next(map(told, in_doubt(work.ledger, subscription.name)), None),
        others=tuple(others),
    )


def end_run(work: UnitOfWork, command: EndRun) -> Done:
    """Note that fn ended: stage its outcomes, or its failure; with `settle` they take effect at once.

    With `cancel` Spark takes the batch for done, and its proof gives its rows back.
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
        work.emit(Kind.OUTCOMES, of=lease, reason=RUN_STOPPED, detail={"cancel": True} if command.cancel else {})
        if command.cancel:
            work.sessions.of(subscription.name, command.run.incarnation).returned = lease.number
        return Done()
    refuse_fenced(work, lease, command.run)
    if lease.is_in_doubt or (lease.has_landed and (given or command.cancel)):
        raise refusal(work.ledger, lease, "what its run says of it")
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


def _end_idle_run(work: UnitOfWork, subscription: Subscription, command: EndRun) -> None:
    """Note how a run ended that had no messages, where that is news: a failure, and the first success after one."""
    if command.error is not None and not command.stopped:
        detail = {"error": command.error[:ERROR_TEXT_LIMIT]}
        work.emit(Kind.OUTCOMES, subscription=subscription.name, reason=RUN_FAILED, detail=detail)
    elif subscription.idle_failures and not command.stopped:
        work.emit(Kind.OUTCOMES, subscription=subscription.name, reason=Outcome.ACKNOWLEDGE)


def prove_run(work: UnitOfWork, command: Prove) -> Done:
    """Take the listener's word that Spark committed a batch; said before, it changes nothing."""
    subscription = work.subscription(command.subscription)
    newest = work.ledger.leases.get(subscription.lease)
    if command.run.lease >= subscription.lease and newest is not None and not newest.proven:
        lease = lease_of_run(work, subscription, command.run)
        if lease is not None:
            refuse_fenced(work, lease, command.run)
            prove(work, lease, acknowledges=subscription.ack_mode == AUTO)
    return Done()


def lease_of_run(work: UnitOfWork, subscription: Subscription, run: Run) -> Lease | None:
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
    raise stale_run(work, run, subscription.name, reason)


def stale_run(work: UnitOfWork, run: Run, subscription: str, reason: str) -> LeaseError:
    """Return why a run is not the current one (P4)."""
    speaks = f"{list(run.incarnation)} of lease {run.lease}"
    return LeaseError("STALE_RUN", subscription=subscription, queue=work.ledger.definition.name, run=speaks, reason=reason)
