"""Answers to planners: to attach, for the next lease, for a lease's rows, to renew, to leave (DESIGN 7, P1 to P6)."""

from __future__ import annotations

from msgspec import structs
from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.commands import (
    Attach,
    DrawIncarnation,
    Leave,
    Next,
    PlannerCommand,
    Renew,
    Rows,
    RowsTaken,
    Unsubscribe,
)
from spark_queue.core.deciding.barrier import release
from spark_queue.core.deciding.batch_runs import is_handed_over_once, refuse_receiver
from spark_queue.core.deciding.granting import grant, granted
from spark_queue.core.deciding.outcomes import read_rows
from spark_queue.core.deciding.planners import end_subscription, hand_to_caller
from spark_queue.core.deciding.receiving import begin_kind, give_back_held, next_of_receiver, renew_held
from spark_queue.core.deciding.resuming import resumable, resume, resume_run
from spark_queue.core.deciding.session import Session
from spark_queue.core.deciding.settlement import end_lease, prove
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.definitions.keys import valid_name
from spark_queue.core.records import RUN_STOPPED, AckMode, Incarnation, Return
from spark_queue.core.replies import Done, Drawn, Granted, LeasedRows, Renewed, RowsOf
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.subscription import Subscription
from spark_queue.errors import ConfigError, LeaseError


def draw_incarnation(work: UnitOfWork, _: DrawIncarnation) -> Drawn:
    """Return a planner start its place in the order; records nothing (DESIGN 15.6)."""
    queue = work.ledger.definition
    incarnation = work.sessions.draw(work.state.epoch)
    return Drawn(
        incarnation=incarnation, lease_period_ms=queue.lease_period_ms, message_type=queue.message_type, columns=queue.columns,
        at_most_once=queue.at_most_once,
    )  # fmt: skip


def attach(work: UnitOfWork, command: Attach) -> Done:
    """Make a planner start the owner of a subscription, which begins with its first attach; the newest wins (P1).

    Its options replace those of the attach before, and break no lease (R118). Messages that it is given must match its
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
    if command.ack_mode not in list(AckMode):
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
    work.state.prepare_filters(work.ledger, [text for text in (command.filter, *work.row_filters()) if text is not None])
    known = begin_kind(work, hand_to_caller(work, known), receives=command.ack_mode == AckMode.RECEIVE)
    wanted = records.Subscribed(
        ack_mode=command.ack_mode, max_backlog=command.max_backlog, filter=command.filter, ends=command.ends
    )
    if work.caller is not None and work.caller.principal is not None:
        wanted = structs.replace(wanted, principal=work.caller.principal, entitlement=work.row_filters())
    asked = None if known is None else known.asked
    if asked is not None and wanted.principal is None:
        # Where there are no principals, the one that it had is nothing that it asks for.
        asked = structs.replace(asked, principal=None, entitlement=())
    if asked != wanted:
        work.emit(wanted, subscription=name)
    until = work.state.message_types[work.ledger.definition.message_type].entered_until if command.available_now else None
    work.emit(records.Attached(incarnation=incarnation, call=call, until=until), subscription=name)


def _check_name(work: UnitOfWork, name: str) -> None:
    if not valid_name(name):
        raise ConfigError("NAME_INVALID", what="subscription", name=name)
    clash = next((other for other in work.ledger.subscriptions if other != name and other.lower() == name.lower()), None)
    if clash is not None:
        raise ConfigError("NAME_CASE_CLASH", what="subscription", name=name, other=clash)


def _planner(work: UnitOfWork, command: PlannerCommand) -> tuple[Subscription, Session]:
    """Return the subscription and session of a call; refuse a superseded planner, and a call that a newer one overtook (P1)."""
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
    overrun = read_rows(work.state, command.queue, command.overrun)
    work.shares.note_poll(subscription, limit=command.limit, overrun=overrun, now_ms=work.now_ms)
    _check_lease_number(work, subscription, command.finished)
    if subscription.receives:
        return next_of_receiver(work, subscription, session, command)
    lease = work.ledger.open_lease(subscription)
    if lease is not None and lease.number > command.finished:
        if not work.may_grant():
            return None
        if lease.incarnation != session.incarnation and not (is_handed_over_once(work, lease) or lease.has_landed):
            rows = resumable(work, lease)
            resume(work, lease, session.incarnation, rows, call=command.call, counted=False, vanished_runs=lease.vanished_runs)
        return granted(work, lease)
    if lease is not None:
        prove(work, lease, acknowledges=subscription.ack_mode == AckMode.AUTO)
        # Room that the proof has freed is there for this very call.
        release(work)
    queue = work.ledger.definition
    if command.columns not in (None, queue.columns):
        # Before anything is granted: at most once, a grant cannot be taken back.
        return Granted(lease=command.finished, lease_period_ms=queue.lease_period_ms, columns=queue.columns)
    lease = grant(work, subscription, session, call=command.call, limit=command.limit)
    return None if lease is None else granted(work, lease)


def lease_rows(work: UnitOfWork, command: Rows) -> LeasedRows:
    """Return the rows that the micro-batch of a lease reads, resuming it under a newer planner (P2, P3).

    A settled lease reads as empty. Acts once per incarnation and lease: a repeat gives the same rows and changes nothing.
    """
    subscription, session = _planner(work, command)
    refuse_receiver(work, subscription, "reading a lease")
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
    if is_handed_over_once(work, lease):
        return _hand_over(work, lease, session, call=call)
    own = lease.incarnation == session.incarnation
    # Landed messages are read again as they were, also once they have left the queue, and are no delivery any more (R126).
    own = own or lease.has_landed
    if not (own and (session.asked == lease.number or lease.is_whole)):
        resume_run(work, lease, session, call=call)
    session.note_taken(lease.number)
    return lease.rows


def rows_taken(work: UnitOfWork, command: RowsTaken) -> Done:
    """Note that Spark was given the rows of a lease as they came with its grant (P3)."""
    subscription, session = _planner(work, command)
    refuse_receiver(work, subscription, "reading a lease")
    _check_lease_number(work, subscription, command.lease)
    session.note_taken(command.lease)
    return Done()


def renew(work: UnitOfWork, command: Renew) -> Renewed:
    """Extend a lease by one period, up to the queue's `lease_renewal_limit`; a superseded planner's renewals are ignored."""
    subscription, queue = work.subscription(command.subscription), work.ledger.definition
    if subscription.receives:
        return renew_held(work, subscription, command)
    lease = work.ledger.open_lease(subscription)
    is_own = lease is not None and lease.number == command.lease and command.incarnation == subscription.incarnation
    if lease is not None and is_own and work.ledger.outstanding(lease):
        due_at_ms = min(work.now_ms + queue.lease_period_ms, lease.begun_at_ms + queue.lease_renewal_limit_ms)
        if due_at_ms > lease.due_at_ms:
            work.emit(records.Renewed(incarnation=command.incarnation), of=lease, due_at_ms=due_at_ms, reason="renewal")
    return Renewed(lease_period_ms=queue.lease_period_ms)


def leave(work: UnitOfWork, command: Leave) -> Done:
    """Note that a planner ends; its lease returns at once where its batch cannot have been committed (R19, P6)."""
    subscription = work.subscription(command.subscription)
    if subscription.receives:
        give_back_held(work, subscription, command)
    elif command.incarnation == subscription.incarnation and not subscription.left:
        work.emit(records.Left(incarnation=command.incarnation), subscription=subscription.name, reason="left")
        lease, session = work.ledger.open_lease(subscription), work.sessions.of(subscription.name, command.incarnation)
        if command.taken:
            session.note_taken(command.taken)
        if lease is not None and lease.attempt is None and session.cannot_be_committed(lease):
            end_lease(work, lease, Return.DISCONNECTED, undelivered=session.unasked == lease.number)
        elif lease is not None and session.returned == lease.number and lease.failure is None and not lease.stopped:
            # fn has got through its batch: whatever kept Spark from committing it, if anything did, it is not the messages.
            work.emit(records.Outcomes(), of=lease, reason=RUN_STOPPED)
    return Done()


def unsubscribe(work: UnitOfWork, command: Unsubscribe) -> Done:
    """End a subscription by command; its messages return."""
    end_subscription(work, work.subscription(command.subscription), reason="user")
    return Done()


def _hand_over(work: UnitOfWork, lease: Lease, session: Session, *, call: int) -> BitMap64:
    """Return an at-most-once lease's rows to the first planner start that asks, and to no other (DESIGN 7).

    One that lapsed begins anew with it. Not where others may have gone on with its keys: its rows come too late for their order.
    """
    queue = work.ledger.definition
    if lease.handed_to is None and not (lease.lapsed and queue.order_key is not None):
        due_at_ms = work.now_ms + queue.lease_period_ms if lease.lapsed else None
        work.emit(records.Claimed(incarnation=session.incarnation, call=call), of=lease, due_at_ms=due_at_ms)
    return lease.rows if lease.handed_to == session.incarnation else BitMap64()


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
