"""The passing of time: leases and messages expire, forgotten subscriptions end (R15, R50 to R52)."""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import below
from spark_queue.core.deciding.instances.claims import end_claims
from spark_queue.core.deciding.planners import end_subscription
from spark_queue.core.deciding.redriving import purge_old
from spark_queue.core.deciding.removal import remove_aged
from spark_queue.core.deciding.settlement import end_lease
from spark_queue.core.deciding.shares import Shares
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Return
from spark_queue.core.state.age import first_aging_ms
from spark_queue.core.state.in_doubt import in_doubt
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.subscription import Subscription

#: Where messages are that may expire: in the queue, and not leased (R51).
_UNLEASED = (State.AVAILABLE, State.DELAYED, State.INACTIVE)


def take_over(work: UnitOfWork) -> None:
    """Give every open lease time to be renewed by a living holder, and every planner to poll (DESIGN 15.2, 8)."""
    end_claims(work)
    for subscription in work.ledger.subscriptions.values():
        work.shares.note_poll(subscription, limit=subscription.max_backlog, now_ms=work.now_ms)
    for lease in [lease for lease in work.ledger.leases.values() if work.ledger.outstanding(lease)]:
        due_at_ms = max(lease.due_at_ms, work.now_ms + work.ledger.definition.lease_period_ms // 3)
        work.emit(records.Renewed(incarnation=lease.incarnation), of=lease, due_at_ms=due_at_ms, reason="takeover")


def tick(work: UnitOfWork, *, reign_began_at_ms: int) -> None:
    """End everything that is due on one queue: leases, kept parts, forgotten subscriptions; ages follow by `expire`.

    No subscription is forgotten for silence before `reign_began_at_ms`, since an idle poll leaves no record.
    """
    for lease in [each for each in _ending(work.ledger) if each.due_at_ms <= work.now_ms]:
        if lease.leased:
            end_lease(work, lease, Return.LEASE_EXPIRED)
        else:
            # At most once: nothing comes back.
            work.emit(records.Lapsed(), lease.rows, of=lease)
    end_claims(work)
    work.shares.drop_lapsed(work.ledger, work.now_ms)
    for subscription in list(work.ledger.subscriptions.values()):
        heard = max(work.sessions.heard_at_ms.get(subscription.name, 0), subscription.last_seen_at_ms, reign_began_at_ms)
        if work.now_ms - heard > _retention_ms(work.ledger, subscription) and not _holds(work.ledger, subscription.name):
            end_subscription(work, subscription, reason="retention")


def _retention_ms(ledger: QueueLedger, subscription: Subscription) -> int:
    """Return how long a subscription outlives the silence of its consumer; one that was made for it ends with a lease (R140)."""
    if subscription.ends:
        return ledger.definition.lease_period_ms
    # A stream that works is heard at every third of its lease's period, and is not gone until its lease ends (R15, R18).
    return max(ledger.definition.subscription_retention_ms, ledger.definition.lease_period_ms)


def _holds(ledger: QueueLedger, subscription: str) -> bool:
    """Return whether messages are a subscription's still: leased, or in an attempt that is in doubt."""
    return bool(ledger.backlogs()[subscription]) or any(in_doubt(ledger, subscription))


def _ending(ledger: QueueLedger) -> Iterator[Lease]:
    """Yield the leases that end once they are due; one in doubt waits until somebody has decided about it (R123)."""
    return (lease for lease in ledger.leases.values() if ledger.outstanding(lease) and not lease.is_in_doubt)


def next_due_ms(state: JournalState, ledger: QueueLedger, shares: Shares, *, ticked_at_ms: int) -> int | None:
    """Return the earliest time at which a lease or a share ends, a delay falls due, or a message may expire; None for never.

    A delay or a probe that was due at the last tick, at `ticked_at_ms`, waits for something else.
    """
    times = [lease.due_at_ms for lease in _ending(ledger)]
    times.extend(due_at_ms for due_at_ms in ledger.delayed if due_at_ms > ticked_at_ms)
    alarms = [each.alarm for each in ledger.subscriptions.values() if each.alarm is not None]
    times.extend(each.probe_at_ms for each in alarms if each.probe_at_ms is not None and each.probe_at_ms > ticked_at_ms)
    retention_ms, letters_since_ms = ledger.definition.dead_letter_retention_ms, ledger.dead_letters.oldest_ms
    if retention_ms is not None and letters_since_ms is not None and letters_since_ms + retention_ms > ticked_at_ms:
        times.append(letters_since_ms + retention_ms)
    # A leased message waits for the end of its lease; a tick too many costs less than finding out.
    expires_at_ms = ledger.expires.next_after(ticked_at_ms, gone=[ledger.rows[State.REMOVED]])
    times.extend(each for each in (expires_at_ms, shares.next_lapse_ms(ledger)) if each is not None)
    expiration_ms = ledger.definition.expiration_ms
    if expiration_ms is not None:
        waiting = [ledger.rows[each] for each in _UNLEASED]
        begun_ms = first_aging_ms(state, ledger, [rows - ledger.expires.rows for rows in waiting] if ledger.expires else waiting)
        times.extend([] if begun_ms is None else [begun_ms + expiration_ms])
    return min(times, default=None)


def expire(work: UnitOfWork) -> None:
    """Remove messages past their age that are not leased, even just entered (R50, R51), and dead letters past theirs (R13)."""
    purge_old(work)
    ledger = work.ledger
    aged_until = work.state.aged_until(ledger.definition, work.now_ms)
    overdue = bool(ledger.overdue(work.now_ms))
    if aged_until or overdue:
        remove_aged(work, _waiting(ledger, aged_until, overdue=overdue))
        ledger.forget_expirations(now_ms=work.now_ms)


def _waiting(ledger: QueueLedger, aged_until: int, *, overdue: bool) -> BitMap64:
    """Return the messages without a lease that might be over age."""
    waiting = BitMap64.union(*(ledger.rows[state] for state in _UNLEASED))
    return waiting if overdue else below(waiting, aged_until)
