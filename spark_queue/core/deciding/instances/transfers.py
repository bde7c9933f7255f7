"""Ownership on its way: asking an owner for messages that wait (R104), giving away, and claiming (R108 to R110)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, oldest
from spark_queue.core.commands import ProxiedTransfer
from spark_queue.core.deciding.barrier import before_held
from spark_queue.core.deciding.shares import room_of
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import CLAIMED, Kind
from spark_queue.core.replies import Done
from spark_queue.core.state.lease import Subscription
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import Ownership
from spark_queue.errors import CallerError

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
    if ledger.definition.order_key is not None or not work.state.definitions.is_replicated(ledger.definition.name):
        # All of it stays with its owner: two could not keep the order of one key (DESIGN 17.2).
        return
    room = min(limit, room_of(ledger, subscription))
    if room <= 0:
        return
    patient_until = work.state.message_types[ledger.definition.message_type].entered_by(work.now_ms - patience_ms(work))
    remote = before_held(ledger, ledger.rows[State.REMOTE])
    wanted = ledger.selection.matching(remote, subscription.filter)
    for owner, rows in ownership.of_others(wanted).items():
        known = ownership.requests.get(owner)
        if room <= 0 or (known is not None and work.now_ms < known.at_ms + OPEN_MS):
            continue
        asked = oldest(below(rows, patient_until), room)
        if asked:
            detail = {"requester": ownership.instance, "owner": owner, "passed": [], **_latest_life(ownership, asked)}
            work.emit(Kind.TRANSFER_REQUESTED, asked, detail=detail)
            room -= len(asked)


def _latest_life(ownership: Ownership, rows: BitMap64) -> dict[str, int]:
    """Return the latest life of rows, for a detail: an owner that does not have them says that they are gone in it."""
    life = max(life for life, _ in ownership.by_life(rows))
    return {"life": life} if life else {}


def patience_ms(work: UnitOfWork) -> int:
    """Return how long a message of another instance waits here before it is asked for: as long as news of its end may take."""
    definitions = work.state.definitions
    interval_ms = max((peer.pull_interval_ms for peer in definitions.peers.values()), default=0)
    return min(2 * interval_ms, definitions.replication.transfer_after_ms)


def claimable(work: UnitOfWork) -> BitMap64:
    """Return the messages that may be claimed: of owners that cannot be reached, while somebody allows it (R108, R109)."""
    ownership = work.ledger.ownership
    if ownership is None or not (ownership.claims_unreachable and work.reach.is_level) or work.ledger.definition.at_most_once:
        return BitMap64()
    after_ms = work.state.definitions.replication.unreachable_after_ms
    parts = ownership.of_others(work.ledger.rows[State.REMOTE])
    lost = (rows for owner, rows in parts.items() if work.reach.is_lost(owner, now_ms=work.now_ms, after_ms=after_ms))
    return BitMap64.union(BitMap64(), *lost)


def claim(work: UnitOfWork, rows: BitMap64) -> None:
    """Take those of `rows` that another instance owns; they may be claimed (R110)."""
    ownership = work.ledger.ownership
    foreign = BitMap64() if ownership is None else rows & work.ledger.rows[State.REMOTE]
    if ownership is not None and foreign:
        transfer(work, foreign, ownership.instance, reason=CLAIMED)


def claim_matching(work: UnitOfWork, where: str | None) -> None:
    """Claim what somebody is about to end by a filter, or without one, as far as it may be claimed."""
    lost = claimable(work)
    if lost:
        claim(work, lost if where is None else work.matching(where, lost))


def switch(work: UnitOfWork, command: ProxiedTransfer) -> Done:
    """Let messages be claimed whose owner cannot be reached, or no more (R108)."""
    ownership, queue = work.ledger.ownership, work.ledger.definition
    what = f"Proxied transfer of queue '{queue.name}'"
    if ownership is None:
        reason, next_step = "no other instance owns messages of it.", "Name a queue that is pulled from a peer."
        raise CallerError("UNSUPPORTED_WRITE", what=what, reason=reason, next_step=next_step)
    if queue.at_most_once:
        reason = "it delivers at most once, and what a lost owner delivered is not known."
        next_step = "Bring the owner back, or settle its messages by hand."
        raise CallerError("UNSUPPORTED_WRITE", what=what, reason=reason, next_step=next_step)
    if ownership.claims_unreachable != command.on:
        work.emit(Kind.PROXIED_TRANSFER, detail={"on": command.on})
    return Done()


def transfer(work: UnitOfWork, rows: BitMap64, owner: str, *, reason: str | None = None) -> None:
    """Record that rows belong to an instance from now on, in a term above all that they had."""
    ownership = work.ledger.ownership
    assert ownership is not None, "the queue is replicated"
    term = 1 + max(term for term, _, _ in ownership.by_owner(rows))
    for deliveries, delivered in list(work.ledger.delivered.split(rows)):
        for cancels, part in list(work.ledger.cancelled.split(delivered)):
            counts = {"deliveries": deliveries, "cancels": cancels}
            work.emit(Kind.TRANSFERRED, part, reason=reason, detail={"term": term, "owner": owner, **counts})
