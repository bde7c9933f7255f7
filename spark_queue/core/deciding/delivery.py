"""What a planner asks: to attach, for the next lease, for a lease's rows, to renew, to leave (DESIGN 7, P1 to P6)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import oldest
from spark_queue.core.deciding.barrier import give_up, is_spent, release
from spark_queue.core.deciding.granting import grant
from spark_queue.core.deciding.isolation import isolate
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.session import Session
from spark_queue.core.deciding.settlement import end_lease, give_back_failed, in_queue, prove
from spark_queue.core.deciding.turn import Turn
from spark_queue.core.definitions.definition import valid_name
from spark_queue.core.records import Kind, Removal, Return
from spark_queue.core.state.lease import Incarnation, Lease, Subscription
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import ConfigError, LeaseError

#: Runs in a row that end without a report before their batch is halved (DESIGN 8).
VANISHED_RUNS_LIMIT = 3

AUTO = "auto"
EXPLICIT = "explicit"


def attach(
    turn: Turn,
    name: str,
    session: Session,
    call: int,
    *,
    ack_mode: str,
    max_backlog: int,
    filter_sql: str | None,
    available_now: bool,
) -> None:  # fmt: skip
    """Make a planner start the owner of a subscription, which begins with its first attach; the newest wins (P1).

    What it asks for replaces what the subscription asked for before, and breaks no lease (R118).

    Parameters
    ----------
    filter_sql : str or None
        What it is given must match; None for everything (R49).
    """
    _check_name(turn, name)
    incarnation = session.incarnation
    if ack_mode not in (AUTO, EXPLICIT):
        raise ConfigError("BAD_VALUE", key="ackMode", where=f"subscription '{name}'", value=ack_mode, expected="auto or explicit")
    if filter_sql is not None and turn.ledger.definition.underlying_topic is None:
        reason = "messages enter a dead-letter queue by reference only, and no filter is evaluated there."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=f"subscription '{name}'", reason=reason, keys="filter")
    known = turn.ledger.subscriptions.get(name)
    if known is not None and incarnation < known.incarnation:
        raise _taken(turn, known, incarnation)
    if known is not None and incarnation == known.incarnation:
        check_planner(turn, known, session, incarnation, call)
        if call == known.call:
            # The reply to this very call was lost; nothing came after it that a second record might undo.
            return
    if known is None or (known.ack_mode, known.max_backlog, known.filter) != (ack_mode, max_backlog, filter_sql):
        turn.state.prepare_filter(turn.ledger, filter_sql)
        wanted = {"ack_mode": ack_mode, "max_backlog": max_backlog, "filter": filter_sql}
        turn.emit(Kind.SUBSCRIBED, subscription=name, detail=wanted)
    detail = {"incarnation": list(incarnation), "call": call}
    if available_now:
        detail["until"] = turn.state.message_types[turn.ledger.definition.message_type].entered_until
    turn.emit(Kind.ATTACHED, subscription=name, detail=detail)


def _check_name(turn: Turn, name: str) -> None:
    if not valid_name(name):
        raise ConfigError("NAME_INVALID", what="subscription", name=name)
    clash = next((other for other in turn.ledger.subscriptions if other != name and other.lower() == name.lower()), None)
    if clash is not None:
        raise ConfigError("NAME_CASE_CLASH", what="subscription", name=name, other=clash)


def check_planner(turn: Turn, subscription: Subscription, session: Session, incarnation: Incarnation, call: int) -> None:
    """Refuse a planner that was superseded, and a call that was overtaken by a newer one (P1)."""
    if incarnation != subscription.incarnation:
        raise _taken(turn, subscription, incarnation)
    newest = max(session.call, subscription.call)
    if call < newest:
        raise LeaseError("STALE_CALL", subscription=subscription.name, call=call, newest=newest)
    session.call = call


def next_lease(turn: Turn, subscription: Subscription, session: Session, *, call: int, finished: int, limit: int) -> Lease | None:
    """Prove lease `finished`, and give the lease to work on now; None when nothing is there.

    An open lease newer than `finished` is given again, since its reply was lost (DESIGN 7).
    """
    _check_lease_number(turn, subscription, finished)
    lease = turn.ledger.open_lease(subscription)
    if lease is not None and lease.number > finished:
        if lease.incarnation != session.incarnation and not _is_claimed_once(turn, lease):
            rows = _resumable(turn, lease)
            _resume(turn, lease, session, rows, call=call, counted=False, vanished_runs=lease.vanished_runs)
        return lease
    if lease is not None:
        prove(turn, lease, acknowledges=subscription.ack_mode == AUTO)
        # What the proof has freed is there for this very call.
        release(turn)
    return grant(turn, subscription, session, call=call, limit=limit)


def lease_rows(
    turn: Turn, subscription: Subscription, session: Session, *, call: int, number: int
) -> tuple[Lease | None, BitMap64]:
    """Give the rows that the micro-batch of a lease reads, resuming it under a newer planner (P2, P3).

    A settled lease reads as empty. Acts once per incarnation and lease: a repeat gives the same rows and changes nothing.
    """
    _check_lease_number(turn, subscription, number)
    lease = turn.ledger.open_lease(subscription)
    if lease is None or lease.number != number:
        return None, BitMap64()
    if _is_claimed_once(turn, lease):
        return lease, _claim_rows(turn, lease, session, call=call)
    own = lease.incarnation == session.incarnation
    is_whole = lease.is_barrier or len(lease.held) == len(lease.rows)
    if not (own and (session.asked == number or is_whole)):
        _resume_run(turn, lease, session, call=call)
    session.asked, session.unasked = number, 0
    return lease, lease.rows


def renew(turn: Turn, subscription: Subscription, *, incarnation: Incarnation, number: int) -> None:
    """Extend a lease by one period, up to the queue's `lease_renewal_limit`; a superseded planner's renewals are ignored."""
    lease = turn.ledger.open_lease(subscription)
    if lease is None or lease.number != number or incarnation != subscription.incarnation or not turn.ledger.outstanding(lease):
        return
    queue = turn.ledger.definition
    due_at_ms = min(turn.now_ms + queue.lease_period_ms, lease.begun_at_ms + queue.lease_renewal_limit_ms)
    if due_at_ms > lease.due_at_ms:
        turn.emit(Kind.RENEWED, of=lease, due_at_ms=due_at_ms, reason="renewal", detail={"incarnation": list(incarnation)})


def leave(turn: Turn, subscription: Subscription, session: Session) -> None:
    """Note that a planner ends; its lease returns at once where its batch cannot have been committed (R19, P6)."""
    if session.incarnation != subscription.incarnation or subscription.left:
        return
    turn.emit(Kind.LEFT, subscription=subscription.name, reason="left", detail={"incarnation": list(session.incarnation)})
    lease = turn.ledger.open_lease(subscription)
    if lease is not None and session.cannot_be_committed(lease):
        end_lease(turn, lease, Return.DISCONNECTED, undelivered=session.unasked == lease.number)


def unsubscribe(turn: Turn, subscription: Subscription, *, reason: str) -> None:
    """End a subscription; what it holds returns."""
    for lease in [lease for lease in turn.ledger.leases.values() if lease.subscription == subscription.name]:
        end_lease(turn, lease, Return.UNSUBSCRIBED)
    turn.emit(Kind.UNSUBSCRIBED, subscription=subscription.name, reason=reason)


def _is_claimed_once(turn: Turn, lease: Lease) -> bool:
    """Tell whether only the first planner start that asks gets the rows (R16); a barrier is everybody's until its proof."""
    return turn.ledger.definition.at_most_once and not lease.is_barrier


def _claim_rows(turn: Turn, lease: Lease, session: Session, *, call: int) -> BitMap64:
    """Give an at-most-once lease's rows to the first planner start that asks, and to no other (DESIGN 7).

    One that lapsed begins anew with it. Not where others may have gone on with its keys: its rows come too late for their order.
    """
    queue = turn.ledger.definition
    if lease.claimed_by is None and not (lease.lapsed and queue.order_key is not None):
        due_at_ms = turn.now_ms + queue.lease_period_ms if lease.lapsed else None
        detail = {"incarnation": list(session.incarnation), "call": call}
        turn.emit(Kind.CLAIMED, of=lease, due_at_ms=due_at_ms, detail=detail)
    return lease.rows if lease.claimed_by == session.incarnation else BitMap64()


def _resume_run(turn: Turn, lease: Lease, session: Session, *, call: int) -> None:
    asked_before = session.unasked != lease.number
    rows = _resumable(turn, lease)
    # Only a run that had nothing but this message says anything about it (P3).
    lone = asked_before and len(lease.rows) == len(rows) == 1
    vanished_runs = lease.vanished_runs + 1 if asked_before and lease.failure is None else 0
    failed = lease.failure is not None or vanished_runs >= VANISHED_RUNS_LIMIT
    if len(rows) > 1 and failed:
        rows = _halve(turn, lease, rows)
        vanished_runs = 0
    maximum = turn.ledger.definition.max_deliveries
    if lone and lease.is_barrier and is_spent(turn, turn.ledger.subscriptions[lease.subscription]):
        give_up(turn, lease, error=lease.failure)
        rows = BitMap64()
    elif lone and not lease.is_barrier and (failed or turn.ledger.subscriptions[lease.subscription].is_stopped):
        # The batch reads empty, and the next one tries others.
        give_back_failed(turn, lease, rows, Return.ISOLATED)
        rows = BitMap64()
    elif lone and maximum and turn.ledger.delivered.at_least(maximum, rows):
        # The lone message of a failing batch has used its deliveries: it becomes a dead letter, and the batch reads empty.
        remove(turn, rows, Removal.MAX_DELIVERIES, lease=lease, error=lease.failure)
        rows = BitMap64()
    _resume(turn, lease, session, rows, call=call, counted=lone and bool(rows), vanished_runs=vanished_runs)


def _resumable(turn: Turn, lease: Lease) -> BitMap64:
    """Give what a resume may cover: what is still held, and what came back and is not held up by its order key (P2).

    A barrier is its subscription's until the proof: nobody else takes it from there.
    """
    if lease.is_barrier:
        return lease.rows & turn.ledger.subscriptions[lease.subscription].barriers
    # What somebody cancelled by hand, to be delivered later, is not delivered sooner by a restart.
    later = turn.ledger.rows[State.DELAYED] - turn.ledger.due(turn.now_ms)
    came_back = in_queue(turn, lease.claim) - lease.held - later
    return lease.held | turn.ledger.selection.order_keys.together(came_back, lease.held)


def _halve(turn: Turn, lease: Lease, rows: BitMap64) -> BitMap64:
    """Give back the younger half of a failing batch, and what is left of it (DESIGN 8, isolation)."""
    kept = oldest(rows, (len(rows) + 1) // 2)
    isolate(turn, lease, rows - kept)
    return kept


def _resume(turn: Turn, lease: Lease, session: Session, rows: BitMap64, *, call: int, counted: bool, vanished_runs: int) -> None:
    turn.emit(
        Kind.RESUMED,
        rows,
        of=lease,
        due_at_ms=turn.now_ms + turn.ledger.definition.lease_period_ms,
        detail={
            "incarnation": list(session.incarnation),
            "call": call,
            # What came back undelivered was not counted when it was granted.
            "counted": counted or lease.undelivered,
            "vanished_runs": vanished_runs,
        }
        | ({"barrier": True} if lease.is_barrier else {}),
    )


def _check_lease_number(turn: Turn, subscription: Subscription, number: int) -> None:
    queue, newest = turn.ledger.definition.name, turn.ledger.next_lease - 1
    if number > newest:
        expected = f"a lease of this queue, which has granted {newest}"
        raise LeaseError("CHECKPOINT_FOREIGN", what=f"lease {number} of queue '{queue}'", expected=expected)
    if 0 < subscription.lease < number:
        expected = f"a lease of subscription '{subscription.name}', whose newest is {subscription.lease}"
        raise LeaseError("CHECKPOINT_FOREIGN", what=f"lease {number} of queue '{queue}'", expected=expected)


def _taken(turn: Turn, subscription: Subscription, own: Incarnation) -> LeaseError:
    return LeaseError(
        "SUBSCRIPTION_TAKEN",
        subscription=subscription.name,
        queue=turn.ledger.definition.name,
        newest=list(subscription.incarnation),
        own=list(own),
    )
