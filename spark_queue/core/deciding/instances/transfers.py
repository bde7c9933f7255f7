"""Ownership on its way: asking an owner for messages that wait (R104), giving away, and claiming (R108 to R110)."""

from __future__ import annotations

from collections.abc import Mapping

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import below, oldest
from spark_queue.core.commands import ProxiedTransfer
from spark_queue.core.deciding.barrier import before_held, waits_for_others
from spark_queue.core.deciding.shares import room_of
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.replies import Done
from spark_queue.core.state.age import came_by, came_ms
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import Ownership, Request
from spark_queue.core.state.subscription import Subscription
from spark_queue.errors import CallerError, ConfigError, nearest

#: How long a request stays open of which nothing comes, in milliseconds.
OPEN_MS = 5_000

#: Most messages that one request names: more than consumers have at a time, and as many as one record can answer.
NAMED_MOST = 500_000


def request(work: UnitOfWork, subscription: Subscription, *, limit: int) -> None:
    """Ask the owners of messages that a waiting poll could take, `limit` at most, once they have waited long enough here (R104).

    A request names all that have waited and says how many of them are wanted: which are free only their owner knows, and the oldest
    are those that it has leased. One request for each owner is open at a time, until something of it came or 5 s have passed.
    """
    ledger, ownership = work.ledger, work.ledger.ownership
    if not ledger.rows[State.REMOTE] or ledger.paused or subscription.is_stopped or ownership.claims:
        # Claimed messages are for every subscription that has room.
        return
    if not work.may_grant() or keeps_all(ledger) or not work.state.definitions.is_replicated(ledger.definition.name):
        # Of a queue that is replicated no more nobody would hear.
        return
    # Each waiting poll comes here at each step of the loop, mostly in vain: conditions that need no look at messages come first.
    since_ms = _patient_since_ms(work, ownership)
    room = min(limit, room_of(ledger, subscription)) if since_ms else 0
    if room <= 0:
        return
    remote = ledger.rows[State.REMOTE] - ledger.not_due(work.now_ms) if ledger.not_before else ledger.rows[State.REMOTE]
    wanted = work.visible_to_subscription(subscription, before_held(ledger, remote))
    parts = {
        owner: came_by(work.state, ledger, part, since_ms[owner]) for owner, part in ownership.of_others(wanted, since_ms).items()
    }
    asked = {owner: _to_name(ownership, waited, ownership.requests.get(owner)) for owner, waited in parts.items() if waited}
    limits = _shared(work, ownership, room, {owner: len(named) for owner, (_, named) in asked.items()})
    for owner, (life, named) in sorted(asked.items()):
        body = records.TransferRequested(requester=ownership.instance, owner=owner, limit=limits[owner], life=life)
        work.emit(body, named)


def keeps_all(ledger: QueueLedger) -> bool:
    """Return whether all messages stay with their owners: two could not keep the order of one key (DESIGN 17.2).

    Barriers of two would wait for each other's messages for ever.
    """
    return ledger.definition.order_key is not None and not waits_for_others(ledger)


def _shared(work: UnitOfWork, ownership: Ownership, room: int, named: Mapping[str, int]) -> dict[str, int]:
    """Return how many messages to ask of each owner, by how many are named to it: a share of the room, and the rest of others.

    An owner that is asked already has its share, too, and may have all of it leased: so each is asked for a share at least, and for
    one message where the room is less than the owners are.
    """
    standing = [request.limit for request in ownership.requests.values() if _is_open(work, request)]
    share = max(1, room // (len(standing) + len(named))) if named else 0
    left, limits = room - sum(standing), dict[str, int]()
    for count, owner in sorted((count, owner) for owner, count in named.items()):
        limits[owner] = min(count, max(share, left // (len(named) - len(limits))))
        left -= limits[owner]
    return limits


def _to_name(ownership: Ownership, waited: BitMap64, before: Request | None) -> tuple[int, BitMap64]:
    """Return the earliest life of the messages that a request names, and these: its owner calls unknown ones gone in that life.

    These are the oldest, or those behind the last request that named as many as one can in vain; after all were named in vain,
    those in a later life than they were said to be.
    """
    lives = dict(ownership.by_life(waited))
    earliest = min(lives, default=0)
    if before is not None and before.life == earliest and len(before.rows) >= NAMED_MOST:
        behind = waited - below(waited, before.rows.max() + 1)
        if behind:
            return earliest, oldest(behind, NAMED_MOST)
    if before is not None and before.rows.intersect(waited):
        later = [life for life in lives if life > before.life]
        if later:
            return min(later), oldest(BitMap64.union(*(lives[life] for life in later)), NAMED_MOST)
    return earliest, oldest(waited, NAMED_MOST)


def _patient_since_ms(work: UnitOfWork, ownership: Ownership) -> dict[str, int]:
    """Return by owner since when a message must have been here to be asked for now; without owners that are asked already.

    Empty where none can have been here for so long.
    """
    state, ledger = work.state, work.ledger
    owners = [owner for owner in ownership.others() if not _is_open(work, ownership.requests.get(owner))]
    found = {owner: work.now_ms - transfer_delay_ms(work, owner) for owner in owners}
    known = state.message_types[ledger.definition.message_type]
    return found if found and ledger.rows[State.REMOTE].min() < known.entered_by(max(found.values())) else {}


def _is_open(work: UnitOfWork, request: Request | None) -> bool:
    if request is None or work.now_ms >= request.at_ms + OPEN_MS:
        return False
    return request.rows.intersect(work.ledger.rows[State.REMOTE])


def transfer_delay_ms(work: UnitOfWork, owner: str) -> int:
    """Return how long a message of another instance waits here before it is asked for (R104)."""
    definitions = work.state.definitions
    interval_ms = max((peer.pull_interval_ms for peer in definitions.peers.values()), default=0)
    return work.transfer_delay.ms(owner, at_first_ms=2 * interval_ms, at_most_ms=definitions.replication.transfer_after_ms)


def note_ends(work: UnitOfWork, rows: BitMap64) -> None:
    """Note how long messages of other instances have been here, of which news say that they have come to their end."""
    for owner, part in work.ledger.ownership.of_others(rows & work.ledger.rows[State.REMOTE]).items():
        # One of them stands for all: a record costs the same for any number of messages.
        work.transfer_delay.note_end(owner, work.now_ms - came_ms(work.state, work.ledger, part[len(part) // 2]))


def switch(work: UnitOfWork, command: ProxiedTransfer) -> Done:
    """Allow claims of messages with an owner that cannot be reached, or end that (R108)."""
    ownership, queue = work.ledger.ownership, work.ledger.definition
    what = f"Proxied transfer of queue '{queue.name}'"
    if not work.ledger.is_replicated:
        reason, next_step = "no other instance owns messages of it.", "Name a queue that is pulled from a peer."
        raise CallerError("UNSUPPORTED_WRITE", what=what, reason=reason, next_step=next_step)
    if queue.at_most_once:
        reason = "it delivers at most once, and it is unknown what a lost owner delivered."
        next_step = "Bring the owner back, or settle its messages by hand."
        raise CallerError("UNSUPPORTED_WRITE", what=what, reason=reason, next_step=next_step)
    owner, peers = command.owner, work.state.definitions.peers
    if owner is None and command.on:
        if len(peers) > 1:
            raise CallerError(
                "UNSUPPORTED_WRITE", what=what, reason="several instances own messages of it, and only one may be lost.",
                next_step=f"Name the lost one: --owner, one of {', '.join(sorted(peers))}.",
            )  # fmt: skip
        owner = next(iter(peers), None)
    known = {*peers, *work.state.instances.values(), *ownership.others()} - {ownership.instance}
    if owner is not None and owner not in known:
        raise ConfigError("UNKNOWN_PEER", peer=owner, nearest=nearest(owner, known))
    # To allow it while nobody is known changes nothing.
    ends_all = owner is None and not command.on and bool(ownership.claims_from)
    if ends_all or (owner is not None and (owner in ownership.claims_from) != command.on):
        work.emit(records.ProxiedTransfer(on=command.on, owner=owner))
    return Done()


def transfer(work: UnitOfWork, rows: BitMap64, owner: str, *, reason: str | None = None, awaits_look: bool = False) -> None:
    """Record that rows belong to an instance from now on, in a term above all that they had; none of them is in the last term."""
    term = 1 + work.ledger.ownership.last_term(rows)
    for deliveries, delivered in list(work.ledger.delivered.split(rows)):
        for cancels, part in list(work.ledger.cancelled.split(delivered)):
            body = records.Transferred(term=term, owner=owner, deliveries=deliveries, cancels=cancels, awaits_look=awaits_look)
            work.emit(body, part, reason=reason)
