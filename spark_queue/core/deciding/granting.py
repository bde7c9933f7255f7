"""Granting: which messages a subscription is leased next, and how many (R22 to R35, R47 to R49).

Messages that are tried apart from ordinary batches: one that failed alone, or a piece of a failed batch (DESIGN 8, 15.12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, oldest
from spark_queue.core.deciding.barrier import before_held, pending
from spark_queue.core.deciding.fairness import UNLIMITED, Contender, assign, backlog_limit, left_within, room_within
from spark_queue.core.deciding.instances.transfers import claim, claimable
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.unit_of_work import Session, UnitOfWork
from spark_queue.core.definitions.keys import FAST
from spark_queue.core.records import Kind, Removal
from spark_queue.core.state.lease import Lease, Subscription
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State


def tried_apart(ledger: QueueLedger, subscription: Subscription, rows: BitMap64, *, piece: BitMap64) -> BitMap64:
    """Return what a subscription tries by itself next; empty where it takes the next batch.

    Parameters
    ----------
    rows : BitMap64
        What may be granted to it now, of each key the oldest.
    piece : BitMap64
        What of its failed batch may be granted to it now, all together.
    """
    lone = ledger.lone_failures.at_least(1, rows)
    if not (lone or piece or subscription.suspects or subscription.is_stopped):
        return BitMap64()
    # Suspects wait as long as there is anything else.
    rows = (rows - BitMap64(subscription.suspects)) or rows
    lone = lone & rows
    others = rows - lone
    if subscription.is_stopped:
        return (others or lone)[-1:]
    if others and _seeks_success(subscription):
        # Messages that fail stand side by side when one publisher made them; the youngest is the likeliest to tell.
        return others[-1:]
    if lone and not (others and subscription.tried_lone):
        return _waits_longest(ledger, lone)
    return oldest(piece, max(1, len(piece) // 2))


def _seeks_success(subscription: Subscription) -> bool:
    """Return whether it is found out now whether messages or the sink are to blame."""
    suspects = subscription.fresh_suspects
    return suspects > 1 or (suspects == 1 and bool(subscription.failed))


def _waits_longest(ledger: QueueLedger, rows: BitMap64) -> BitMap64:
    """Return the one of some messages without a lease that has been due for the longest time; the oldest of several.

    One that has no such time is another instance's, and is to be claimed.
    """
    due = rows & ledger.rows[State.AVAILABLE]
    if not due:
        since_ms = min((due_at_ms for due_at_ms, part in ledger.delayed.items() if part.intersect(rows)), default=None)
        due = rows if since_ms is None else rows & ledger.delayed[since_ms]
    return due[:1]


#: Key of all subscriptions that may be given the same.
_Alike = tuple[str | None, str | None, str]


def grant(work: UnitOfWork, subscription: Subscription, session: Session, *, call: int, limit: int) -> Lease | None:
    """Lease the next messages to a subscription; None when there is nothing for it now (R47, R48).

    A barrier that was released to it comes first and alone, whatever room it has (R71, R72).

    Parameters
    ----------
    limit : int
        Most messages that the caller takes.
    """
    ledger, queue = work.ledger, work.ledger.definition
    if _is_paused(work, subscription) or not work.may_grant():
        return None
    barrier = pending(subscription)
    rows = claim(work, barrier or _take_part(work, subscription, limit), awaits_look=True)
    if not rows:
        return None
    number = ledger.next_lease
    work.emit(
        Kind.GRANTED,
        rows,
        subscription=subscription.name,
        lease=number,
        due_at_ms=work.now_ms + queue.lease_period_ms,
        detail={"incarnation": list(session.incarnation), "call": call, "limit": limit} | ({"barrier": True} if barrier else {}),
    )
    lease = ledger.leases[number]
    session.granted = session.unasked = number
    if queue.at_most_once and not barrier:
        remove(work, rows, Removal.DELIVERED, lease=lease)
    return lease


def _is_paused(work: UnitOfWork, subscription: Subscription) -> bool:
    """Return whether a subscription is given nothing now, whatever is there: by somebody's word, or until its next probe."""
    alarm = subscription.alarm
    return work.ledger.paused or (alarm is not None and alarm.probe_at_ms is not None and work.now_ms < alarm.probe_at_ms)


def grantable(work: UnitOfWork, subscription: Subscription) -> BitMap64:
    """Return the messages that may be leased to a subscription now, whatever room it has; of those of a key the oldest."""
    return work.ledger.selection.heads(_free(work, subscription))


def _free(work: UnitOfWork, subscription: Subscription) -> BitMap64:
    """Return the messages that a subscription may be given now, as far as the order of their keys allows."""
    rows = work.ledger.rows[State.AVAILABLE]
    due = work.ledger.due(work.now_ms)
    if due:
        rows = rows | due
    ownership = work.ledger.ownership
    # What is claimed waits for a look, and nothing more is claimed meanwhile than somebody has room for.
    if ownership is not None and not ownership.claims and (lost := claimable(work)):
        rows = rows | (lost - work.ledger.not_due(work.now_ms))
    if subscription.run_until is not None:
        rows = below(rows, subscription.run_until) - subscription.run_granted
    if subscription.barriers:
        # One that waits for the next run still comes before everything behind it.
        rows = below(rows, subscription.barriers.min())
    return work.visible_to_subscription(subscription, before_held(work.ledger, rows))


def without_lone(ledger: QueueLedger, rows: BitMap64) -> BitMap64:
    """Return those of `rows` that never failed alone: what batches are made of (DESIGN 15.12)."""
    lone = ledger.lone_failures.at_least(1, rows)
    # A copy of ten million waiting messages costs more than the rest of a grant.
    return rows - lone if lone else rows


def is_withheld(work: UnitOfWork, subscription: Subscription) -> bool:
    """Return whether messages that a subscription has room for wait for others, until they come or their window ends.

    They may be what others have kept, or have no room in the queue beside that (R31), or peers are to be heard first (R130). What
    leases of others fill is waited for by nobody.
    """
    backlogs = work.ledger.backlogs()
    left = left_within(work.ledger, backlogs)
    if _is_paused(work, subscription) or min(left, room_within(work.ledger, subscription, backlogs)) <= 0:
        return False
    if not work.may_grant():
        return bool(grantable(work, subscription))
    kept = BitMap64.union(BitMap64(), *(rows for name, rows in work.shares.kept.items() if name != subscription.name))
    rows = grantable(work, subscription) if kept else kept
    return bool(rows) and (len(kept) >= left or kept.intersect(rows))


def _take_part(work: UnitOfWork, asker: Subscription, limit: int) -> BitMap64:
    """Return what the model of fairness gives to the asker now; what it gives to others is kept for them (R32 to R35)."""
    ledger, queue, shares = work.ledger, work.ledger.definition, work.shares
    backlogs = ledger.backlogs()
    left = left_within(ledger, backlogs)
    rows = grantable(work, asker)
    room = min(limit, room_within(ledger, asker, backlogs))
    if min(room, left) <= 0 or not rows:
        return BitMap64()
    failed = without_lone(ledger, rows & asker.failed)
    piece = _with_runs(work, asker, failed, UNLIMITED, among=asker.failed) if failed else failed
    apart = tried_apart(ledger, asker, rows, piece=piece)
    if apart:
        return oldest(apart, min(room, left))
    rows = without_lone(ledger, rows)
    polling = [] if queue.fairness == FAST else shares.polling(ledger, work.now_ms)
    # The asker comes first: of messages that may stand for each other it takes the oldest.
    rooms = {asker.name: room}
    for each, asked in polling:
        # A subscription that tries something apart takes nothing else meanwhile.
        most = min(asked, room_within(ledger, each, backlogs))
        if each is not asker and most > 0 and not (each.is_stopped or each.failed):
            rooms[each.name] = most
    if len(rooms) == 1 and asker.name not in shares.kept:
        # Nobody to share with.
        shares.kept, shares.last = {}, asker.name
        return _with_runs(work, asker, rows, min(room, left))
    candidates = _candidates(work, rooms, backlogs, {_alike(asker): rows})
    names = list(ledger.subscriptions)
    last = shares.last if shares.last in names else _served_last(ledger)
    index = names.index(last) if last else -1
    found = assign(queue.fairness, candidates, last=index, messages=left, order=ledger.selection.priorities)
    shares.kept, shares.last = found.parts, "" if found.last < 0 else names[found.last]
    heads = shares.kept.pop(asker.name)
    return _with_runs(work, asker, heads, min(room, left - sum(map(len, shares.kept.values()))))


def _with_runs(
    work: UnitOfWork, subscription: Subscription, heads: BitMap64, count: int, *, among: BitMap64 | None = None
) -> BitMap64:
    """Return what comes first of `heads`, and of what follows them in their keys: what is shared out is keys as a whole.

    Parameters
    ----------
    among : BitMap64 or None
        What may follow; None for whatever the subscription may be given.
    """
    ledger, queue = work.ledger, work.ledger.definition
    if queue.order_key is None:
        return ledger.selection.first(heads, count)
    free = without_lone(ledger, _free(work, subscription))
    free = free if among is None else free & among
    return ledger.selection.order_keys.runs(heads, free, count=count, longest=queue.order_key_run)


def _candidates(
    work: UnitOfWork, rooms: Mapping[str, int], backlogs: Counter[str], known: dict[_Alike, BitMap64]
) -> list[Contender]:
    """Return those who have room, each with what it may be given; subscriptions that are alike share one bitmap.

    Parameters
    ----------
    known : dict
        What may be given to whom, as far as it was found out; what else is found out joins it.
    """
    positions = {name: position for position, name in enumerate(work.ledger.subscriptions)}
    candidates = []
    for name, room in rooms.items():
        subscription = work.ledger.subscriptions[name]
        if _alike(subscription) not in known:
            known[_alike(subscription)] = without_lone(work.ledger, grantable(work, subscription))
        candidates.append(
            Contender(
                name=name,
                position=positions[name],
                unacknowledged=backlogs[name],
                max_backlog=backlog_limit(work.ledger, subscription),
                room=room,
                rows=known[_alike(subscription)],
                kept=work.shares.kept.get(name, BitMap64()),
            )
        )
    return candidates


def _alike(subscription: Subscription) -> _Alike:
    """Return what is the same for all that may be given the same: principal and filter, unless a run or a barrier bounds it."""
    is_bound = subscription.run_until is not None or bool(subscription.barriers)
    return subscription.principal, subscription.filter, subscription.name if is_bound else ""


def _served_last(ledger: QueueLedger) -> str:
    """Return the subscription of the newest lease; empty before the first."""
    newest = max(ledger.subscriptions.values(), key=lambda each: each.lease)
    return newest.name if newest.lease else ""
