"""Granting: which messages a subscription is leased next, and how many (R22 to R35, R47 to R49)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import oldest
from spark_queue.core.deciding.barrier import pending
from spark_queue.core.deciding.fairness import Contender, assign
from spark_queue.core.deciding.free_rows import free_of, grantable, is_paused, together, without_lone
from spark_queue.core.deciding.instances.claims import claim
from spark_queue.core.deciding.isolation import suspect_to_try
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.session import Session
from spark_queue.core.deciding.shares import UNLIMITED, backlog_limit, left_within, room_within
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.definitions.keys import FAST
from spark_queue.core.records import Removal
from spark_queue.core.replies import Granted
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.subscription import Subscription

#: Key of all subscriptions that may be given the same.
_Alike = tuple[str | None, str | None, bool, str]


def grant(work: UnitOfWork, subscription: Subscription, session: Session, *, call: int, limit: int) -> Lease | None:
    """Lease the next messages to a subscription; None when there is nothing for it now (R47, R48).

    A barrier that was released to it comes first and alone, even if it has no room (R71, R72).
    """
    ledger, queue = work.ledger, work.ledger.definition
    if is_paused(work, subscription) or not work.may_grant():
        return None
    barrier = pending(subscription)
    rows = claim(work, barrier or _take_part(work, subscription, limit), awaits_look=True)
    if not rows:
        return None
    number = ledger.next_lease
    work.emit(
        records.Granted(incarnation=session.incarnation, call=call, limit=limit, barrier=bool(barrier)),
        rows,
        subscription=subscription.name,
        lease=number,
        due_at_ms=work.now_ms + queue.lease_period_ms,
    )
    lease = ledger.leases[number]
    session.granted = session.unasked = number
    if queue.at_most_once and not barrier:
        remove(work, rows, Removal.DELIVERED, lease=lease)
    return lease


def granted(work: UnitOfWork, lease: Lease, *, alone: bool = False) -> Granted:
    """Return the reply that gives a lease."""
    queue = work.ledger.definition
    return Granted(
        lease=lease.number, messages=len(lease.rows), leased_until_ms=lease.due_at_ms, lease_period_ms=queue.lease_period_ms,
        remaining_ms=lease.due_at_ms - work.now_ms, message_type=queue.message_type, columns=queue.columns, alone=alone,
    )  # fmt: skip


def _take_part(work: UnitOfWork, asker: Subscription, limit: int) -> BitMap64:
    """Return the messages that the model of fairness gives to the asker now; those of others are kept for them (R32 to R35)."""
    ledger, queue, shares = work.ledger, work.ledger.definition, work.shares
    backlogs = ledger.backlogs()
    left = left_within(ledger, backlogs)
    rows = grantable(work, asker)
    room = min(limit, room_within(ledger, asker, backlogs))
    if min(room, left) <= 0 or not rows:
        return BitMap64()
    failed = without_lone(ledger, rows & asker.failed)
    piece = _with_runs(work, asker, failed, UNLIMITED, among=asker.failed) if failed else failed
    apart = suspect_to_try(ledger, asker, rows, piece=piece)
    dying = ledger.dying(rows) if asker.receives else BitMap64()
    rows = together(ledger, asker, rows)
    if not apart and dying and not (rows and asker.tried_marked):
        # Each second fetch is for one of them.
        apart = oldest(dying, 1)
    if apart.intersect(dying) and backlogs[asker.name]:
        # It waits until nothing else is in hand.
        return BitMap64()
    if apart:
        return oldest(apart, min(room, left))
    polling = [] if queue.fairness == FAST else shares.polling(ledger, work.now_ms)
    # The asker comes first: of messages that may stand for each other it gets the oldest.
    rooms = {asker.name: room}
    for each, asked in polling:
        # A subscription that tries something apart gets nothing else meanwhile.
        most = min(asked, room_within(ledger, each, backlogs))
        if each is not asker and most > 0 and not (each.is_stopped or each.failed):
            rooms[each.name] = most
    if len(rooms) == 1 and asker.name not in shares.kept:
        # Nobody to share with.
        shares.kept, shares.last = {}, asker.name
        return _with_runs(work, asker, rows, min(room, left))
    candidates = _candidates(work, rooms, backlogs, {_alike(work, asker): rows})
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
    """Return the first of `heads`, and of their followers `among` some rows or all that may be granted: a key is shared whole."""
    ledger, queue = work.ledger, work.ledger.definition
    if queue.order_key is None:
        return ledger.selection.first(heads, count)
    free = together(ledger, subscription, free_of(work, subscription))
    free = free if among is None else free & among
    return ledger.selection.order_keys.runs(heads, free, count=count, longest=queue.order_key_run)


def _candidates(
    work: UnitOfWork, rooms: Mapping[str, int], backlogs: Counter[str], known: dict[_Alike, BitMap64]
) -> list[Contender]:
    """Return the contenders that have room, each with its grantable messages; those that are alike share one bitmap in `known`."""
    positions = {name: position for position, name in enumerate(work.ledger.subscriptions)}
    candidates = []
    for name, room in rooms.items():
        subscription = work.ledger.subscriptions[name]
        alike = _alike(work, subscription)
        if alike not in known:
            known[alike] = together(work.ledger, subscription, grantable(work, subscription))
        candidates.append(
            Contender(
                name=name,
                position=positions[name],
                unacknowledged=backlogs[name],
                max_backlog=backlog_limit(work.ledger, subscription),
                room=room,
                rows=known[alike],
                kept=work.shares.kept.get(name, BitMap64()),
            )
        )
    return candidates


def _alike(work: UnitOfWork, subscription: Subscription) -> _Alike:
    """Return the key of subscriptions that may be given the same: principal, filter, kind, unless something bounds it."""
    is_bound = subscription.run_until is not None or bool(subscription.barriers) or bool(work.shares.overrun(subscription))
    return subscription.principal, subscription.filter, subscription.receives, subscription.name if is_bound else ""


def _served_last(ledger: QueueLedger) -> str:
    """Return the subscription of the newest lease; empty before the first."""
    newest = max(ledger.subscriptions.values(), key=lambda each: each.lease)
    return newest.name if newest.lease else ""
