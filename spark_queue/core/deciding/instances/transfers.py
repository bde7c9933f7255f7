"""Ownership on its way: asking an owner for messages that wait (R104), giving away, and claiming (R108 to R110).

Records of replicated queues: each speaks of messages in one life, and of dead ones in one term (DESIGN 17.4).
Messages that their publisher gave to several instances: one row here, and a further name for each instance (DESIGN 17.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, oldest, to_bitmap, to_ranges
from spark_queue.core.commands import ProxiedTransfer
from spark_queue.core.deciding.barrier import before_held
from spark_queue.core.deciding.fairness import room_of
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.message_files.origins import OriginRows
from spark_queue.core.records import CLAIMED, DEAD_LETTER_REASONS, Emit, Kind
from spark_queue.core.replies import Done
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Subscription
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import MessageValue, Ownership, Request, Stage
from spark_queue.core.state.status import came_by, came_ms
from spark_queue.errors import CallerError

#: How long a request stays open of which nothing comes, in milliseconds.
OPEN_MS = 5_000

#: Most messages that one request names: more than consumers have at a time, and as many as one record can answer.
NAMED_MOST = 500_000


def request(work: UnitOfWork, subscription: Subscription, *, limit: int) -> None:
    """Ask the owners of messages that a waiting poll could take, once they have waited long enough here (R104).

    A request names all that have waited and says how many of them are wanted: which are free only their owner knows, and the oldest
    are those that it has leased. One request for each owner is open at a time, until something of it came or 5 s have passed.

    Parameters
    ----------
    limit : int
        Most messages that the poll takes.
    """
    ledger, ownership = work.ledger, work.ledger.ownership
    if ownership is None or not ledger.rows[State.REMOTE] or ledger.paused or subscription.is_stopped:
        return
    if ledger.definition.order_key is not None or not work.state.definitions.is_replicated(ledger.definition.name):
        # All of it stays with its owner: two could not keep the order of one key (DESIGN 17.2). Or nobody would hear of it.
        return
    # Each waiting poll comes here at each step of the loop, mostly in vain: what does not look at messages is asked first.
    since_ms = _patient_since_ms(work, ownership)
    room = min(limit, room_of(ledger, subscription)) if since_ms else 0
    if room <= 0:
        return
    wanted = work.allowed(subscription, before_held(ledger, ledger.rows[State.REMOTE]))
    parts = {
        owner: came_by(work.state, ledger, part, since_ms[owner]) for owner, part in ownership.of_others(wanted, since_ms).items()
    }
    asked = {owner: _to_name(ownership, waited, ownership.requests.get(owner)) for owner, waited in parts.items() if waited}
    limits = _shared(work, ownership, room, {owner: len(named) for owner, (_, named) in asked.items()})
    for owner, (life, named) in sorted(asked.items()):
        told = {"requester": ownership.instance, "owner": owner, "passed": [], "limit": limits[owner]}
        work.emit(Kind.TRANSFER_REQUESTED, named, detail=told | ({"life": life} if life else {}))


def _shared(work: UnitOfWork, ownership: Ownership, room: int, named: Mapping[str, int]) -> dict[str, int]:
    """Return how many messages to ask of each owner, by how many are named to it: a share of the room, and what others leave.

    Whoever is asked already has its share, too, and may have all of it leased: so each is asked for a share at least, and for one
    message where the room is less than the owners are.
    """
    standing = [request.limit for request in ownership.requests.values() if _is_open(work, request)]
    share = max(1, room // (len(standing) + len(named))) if named else 0
    left, limits = room - sum(standing), dict[str, int]()
    for count, owner in sorted((count, owner) for owner, count in named.items()):
        limits[owner] = min(count, max(share, left // (len(named) - len(limits))))
        left -= limits[owner]
    return limits


def _to_name(ownership: Ownership, waited: BitMap64, before: Request | None) -> tuple[int, BitMap64]:
    """Return what a request is to name, and the earliest life of it: what its owner never had, it calls gone in that life.

    That is the oldest, or what is behind the last request that named as many as one can in vain; after all were named in vain, what
    is in a later life than they were said to be.
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
    """Return by owner since when a message must have been here to be asked for now; without owners who are asked already.

    Empty where none can have been here for so long.
    """
    state, ledger = work.state, work.ledger
    owners = [owner for owner in ownership.others() if not _is_open(work, ownership.requests.get(owner))]
    found = {owner: work.now_ms - patience_ms(work, owner) for owner in owners}
    known = state.message_types[ledger.definition.message_type]
    return found if found and ledger.rows[State.REMOTE].min() < known.entered_by(max(found.values())) else {}


def _is_open(work: UnitOfWork, request: Request | None) -> bool:
    if request is None or work.now_ms >= request.at_ms + OPEN_MS:
        return False
    return request.rows.intersect(work.ledger.rows[State.REMOTE])


def patience_ms(work: UnitOfWork, owner: str) -> int:
    """Return how long a message of another instance waits here before it is asked for (R104)."""
    definitions = work.state.definitions
    interval_ms = max((peer.pull_interval_ms for peer in definitions.peers.values()), default=0)
    return work.patience.ms(owner, at_first_ms=2 * interval_ms, at_most_ms=definitions.replication.transfer_after_ms)


def note_ends(work: UnitOfWork, rows: BitMap64) -> None:
    """Note how long messages of other instances have been here, of which news say that they have come to their end."""
    ownership = work.ledger.ownership
    if ownership is not None:
        for owner, part in ownership.of_others(rows & work.ledger.rows[State.REMOTE]).items():
            # One of them stands for all: a record costs what it costs, however many messages it has.
            work.patience.note_end(owner, work.now_ms - came_ms(work.state, work.ledger, part[len(part) // 2]))


def claimable(work: UnitOfWork) -> BitMap64:
    """Return the messages that may be claimed: of owners that cannot be reached, while somebody allows it (R108, R109)."""
    ownership = work.ledger.ownership
    if ownership is None or not (ownership.claims_unreachable and work.reach.is_level) or work.ledger.definition.at_most_once:
        return BitMap64()
    after_ms = work.state.definitions.replication.unreachable_after_ms
    lost = {owner for owner in ownership.others() if work.reach.is_lost(owner, now_ms=work.now_ms, after_ms=after_ms)}
    owned = BitMap64.union(BitMap64(), *ownership.of_others(work.ledger.rows[State.REMOTE], lost).values())
    return owned - ownership.of_last_term(owned)


def claim(work: UnitOfWork, rows: BitMap64) -> None:
    """Take those of `rows` that another instance owns; they may be claimed (R110)."""
    ownership = work.ledger.ownership
    foreign = BitMap64() if ownership is None else rows & work.ledger.rows[State.REMOTE]
    if ownership is not None and foreign:
        transfer(work, foreign, ownership.instance, reason=CLAIMED)


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
    """Record that rows belong to an instance from now on, in a term above all that they had; none of them is in the last term."""
    ownership = work.ledger.ownership
    assert ownership is not None, "the queue is replicated"
    term = 1 + ownership.last_term(rows)
    for deliveries, delivered in list(work.ledger.delivered.split(rows)):
        for cancels, part in list(work.ledger.cancelled.split(delivered)):
            counts = {"deliveries": deliveries, "cancels": cancels}
            work.emit(Kind.TRANSFERRED, part, reason=reason, detail={"term": term, "owner": owner, **counts})


#: Records of a replicated queue's owner: each has one life, and one term where messages are dead (DESIGN 17.4).
_OF_ONE_LIFE = frozenset({Kind.REMOVED, Kind.DEAD_LETTERED, Kind.REDRIVEN, Kind.TRANSFERRED})


def of_one_life(state: JournalState, kind: str, fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of a record, or those of one record for each life of its messages, where the queue is replicated."""
    # A letter has the life in which its message died.
    queue = fields["detail"]["source"] if kind == Kind.DEAD_LETTERED else fields.get("queue", "")
    ledger = state.queues.get(queue) if kind in _OF_ONE_LIFE else None
    if ledger is None or ledger.ownership is None:
        yield fields
        return
    detail = fields.get("detail", {})
    is_death = kind == Kind.REMOVED and fields.get("reason") in DEAD_LETTER_REASONS
    if ledger.ownership.all_in_first_life and not is_death and kind in {Kind.REMOVED, Kind.TRANSFERRED}:
        # Each acknowledgement comes here, and in most queues nothing was ever redriven.
        yield fields
        return
    instance = ledger.ownership.instance
    for life, rows in ledger.ownership.by_life(to_bitmap(fields["ranges"])):
        for term, owner, part in ledger.ownership.by_owner(rows) if is_death else [(0, instance, rows)]:
            # Under a lease that is still open it may die here after another has claimed it.
            found: dict[str, Any] = {"life": life, "term": term, "owner": "" if owner == instance else owner}
            if kind == Kind.REDRIVEN:
                found |= {"life": life + 1} if part.issubset(ledger.rows[State.DEAD]) else {"stage": int(Stage.GONE)}
            told = {name: value for name, value in found.items() if value}
            yield {**fields, "ranges": to_ranges(part), "detail": told | detail}


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherNames:
    """Further names of messages of a type that are here already."""

    message_type: str
    #: First own bookmark, rows, UUID of the other origin, and the bookmark there.
    rows: tuple[OriginRows, ...]
    #: The names of those instances, by UUID.
    instances: Mapping[str, str]


def take_names(state: JournalState, names: OtherNames, *, peer: str, emit: Emit) -> None:
    """Record further names of messages, as far as they are new, and the greater of what those start with and what is known."""
    new = state.message_types[names.message_type].origins.new_names(names.rows)
    if not new:
        return
    here: dict[str, BitMap64] = {}
    for first, length, origin, _ in new:
        here[origin] = here.get(origin, BitMap64()) | to_bitmap([(first, first + length)])
    instances = {origin: names.instances[origin] for origin in here}
    detail = {"names": [list(each) for each in new], "instances": instances}
    ranges = to_ranges(BitMap64.union(BitMap64(), *here.values()))
    emit(Kind.NAMED, message_type=names.message_type, ranges=ranges, detail=detail)
    for ledger in state.queues_of(names.message_type):
        for origin, rows in here.items():
            _take_start(state, ledger, rows, instances[origin], peer=peer, emit=emit)


def take_known_names(state: JournalState, ledger: QueueLedger, *, peer: str, emit: Emit) -> None:
    """Record the same for a queue that was set aside when the names came."""
    for origin, rows in state.message_types[ledger.definition.message_type].origins.named(ledger.entered):
        _take_start(state, ledger, rows, state.instances[origin], peer=peer, emit=emit)


def _take_start(state: JournalState, ledger: QueueLedger, rows: BitMap64, instance: str, *, peer: str, emit: Emit) -> None:
    """Take over like news that messages belong to an instance at first, where it published them, too."""
    if ledger.ownership is None:
        return
    rows = (rows & ledger.entered) - ledger.barriers
    source = state.definitions.source_of(ledger.definition.name)
    if source in state.queues:
        # A letter starts with whoever dead-lettered it.
        rows -= state.queues[source].entered
    value = MessageValue(owner=ledger.definition.initial_owner or instance)
    changed = ledger.ownership.lesser(ledger.rows, rows, value)
    if changed:
        detail = {"peer": peer, **value.told()}
        emit(Kind.REPLICATED, queue=ledger.definition.name, ranges=to_ranges(changed), reason=Kind.NAMED, detail=detail)
