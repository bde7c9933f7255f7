"""Ownership on its way: asking an owner for messages that wait, and giving away what nobody here can take (R103 to R105)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, oldest
from spark_queue.core.deciding.barrier import before_held
from spark_queue.core.deciding.granting import room_of
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Kind
from spark_queue.core.state.lease import Subscription
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import Ownership

#: How long a request stays open of which nothing moves, in milliseconds.
OPEN_MS = 5_000


def request(work: UnitOfWork, subscription: Subscription, *, limit: int) -> None:
    """Ask the owners of messages that a waiting poll could take, once they have waited long enough here (R104).

    One request for each owner is open at a time, until something of it moved or 5 s have passed.

    Parameters
    ----------
    limit : int
        Most messages that the poll takes.
    """
    ledger, ownership = work.ledger, work.ledger.ownership
    if ownership is None or not ownership.remote or ledger.paused or subscription.is_stopped:
        return
    if ledger.definition.order_key is not None:
        # All of it stays with its owner: two could not keep the order of one key (REPLICATION 2).
        return
    room = min(limit, room_of(ledger, subscription))
    remote = before_held(ledger, ledger.rows[State.REMOTE])
    wanted = ledger.selection.matching(remote, subscription.filter)
    for owner, rows in _by_owner(ownership, wanted):
        known = ownership.requests.get(owner)
        if room <= 0 or (known is not None and work.now_ms < known.at_ms + OPEN_MS):
            continue
        patient_until = work.state.message_types[ledger.definition.message_type].entered_by(work.now_ms - patience_ms(work, owner))
        asked = oldest(below(rows, patient_until), room)
        if asked:
            detail = {"requester": ownership.instance, "owner": owner, "passed": []}
            work.emit(Kind.TRANSFER_REQUESTED, asked, detail=detail)
            room -= len(asked)


def patience_ms(work: UnitOfWork, owner: str) -> int:
    """Return how long a message of an owner waits here before it is asked for: as long as such a message usually lasts."""
    ownership, definitions = work.ledger.ownership, work.state.definitions
    assert ownership is not None, "the queue is replicated"
    intervals = [peer.pull_interval_ms for peer in definitions.peers.values()]
    usual_ms = ownership.typical_ms.get(owner, 2 * max(intervals, default=0))
    return min(round(usual_ms), definitions.replication.transfer_after_ms)


def answer(work: UnitOfWork, rows: BitMap64, detail: Mapping[str, Any]) -> None:
    """Transfer what of a request this instance owns and nobody of its own could take now; otherwise do nothing (R105).

    Parameters
    ----------
    rows : BitMap64
        What was asked for.
    detail : Mapping
        Of the request: who asks, and whom.
    """
    ledger, ownership = work.ledger, work.ledger.ownership
    requester = str(detail["requester"])
    if ownership is None or ledger.paused or requester == ownership.instance:
        return
    free = (rows & ledger.rows[State.AVAILABLE]) - ownership.remote
    for subscription, _ in work.shares.polling(ledger, work.now_ms):
        if room_of(ledger, subscription) > 0 and not subscription.is_stopped:
            free -= ledger.selection.matching(free, subscription.filter)
    if free:
        transfer(work, free, requester)


def transfer(work: UnitOfWork, rows: BitMap64, owner: str) -> None:
    """Record that rows belong to an instance from now on, in a term above all that they had."""
    ownership = work.ledger.ownership
    assert ownership is not None, "the queue is replicated"
    term = 1 + max(term for term, _, _ in ownership.by_owner(rows))
    for deliveries, delivered in list(work.ledger.delivered.split(rows)):
        for cancels, part in list(work.ledger.cancelled.split(delivered)):
            counts = {"deliveries": deliveries, "cancels": cancels}
            work.emit(Kind.TRANSFERRED, part, detail={"term": term, "owner": owner, **counts})


def _by_owner(ownership: Ownership, rows: BitMap64) -> list[tuple[str, BitMap64]]:
    parts: dict[str, BitMap64] = {}
    for _, owner, part in ownership.by_owner(rows & ownership.remote):
        parts[owner] = parts.get(owner, BitMap64()) | part
    return list(parts.items())
