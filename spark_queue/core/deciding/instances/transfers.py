"""Ownership on its way: asking an owner for messages that wait (R104), giving away, and claiming (R108 to R110).

Requests of other instances: granted by the owner of what is asked for, and passed on by everybody else (R103, R105).
Records of replicated queues: each speaks of messages in one life, and of dead ones in one term (DESIGN 17.4).
Messages that their publisher gave to several instances: one row here, and a further name for each instance (DESIGN 17.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import RangeArray, below, count_rows, oldest, to_bitmap, to_ranges
from spark_queue.core.commands import ProxiedTransfer
from spark_queue.core.deciding.barrier import before_held, waits_for_others
from spark_queue.core.deciding.fairness import room_of
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.message_files.origins import OriginRows, Origins
from spark_queue.core.records import CLAIMED, DEAD_LETTER_REASONS, RETURNED_CLAIM, Emit, Kind, Removal
from spark_queue.core.replies import Done
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Subscription
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import PASSED_ON_MS, MessageValue, Ownership, Request, Stage
from spark_queue.core.state.status import came_by, came_ms
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
    if ownership is None or not ledger.rows[State.REMOTE] or ledger.paused or subscription.is_stopped or ownership.claims:
        # What is claimed is for whoever has room.
        return
    if not work.may_grant() or _keeps_all(ledger) or not work.state.definitions.is_replicated(ledger.definition.name):
        # Of a queue that is replicated no more nobody would hear.
        return
    # Each waiting poll comes here at each step of the loop, mostly in vain: what does not look at messages is asked first.
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
        told = {"requester": ownership.instance, "owner": owner, "passed": [], "limit": limits[owner]}
        work.emit(Kind.TRANSFER_REQUESTED, named, detail=told | ({"life": life} if life else {}))


def _keeps_all(ledger: QueueLedger) -> bool:
    """Return whether all messages stay with their owners: two could not keep the order of one key (DESIGN 17.2).

    Barriers of two would wait for each other's messages for ever.
    """
    return ledger.definition.order_key is not None and not waits_for_others(ledger)


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
    ownership = work.ledger.ownership
    if ownership is not None:
        for owner, part in ownership.of_others(rows & work.ledger.rows[State.REMOTE]).items():
            # One of them stands for all: a record costs what it costs, however many messages it has.
            work.transfer_delay.note_end(owner, work.now_ms - came_ms(work.state, work.ledger, part[len(part) // 2]))


def claimable(work: UnitOfWork, *, of_living: bool = False) -> BitMap64:
    """Return the messages that may be claimed: of owners that cannot be reached, while somebody allows it (R108, R109).

    With them is what is claimed and not granted yet, for whoever ends it by hand. Who ends messages of whatever owner, which hears
    of it, may claim those `of_living` ones, too.
    """
    ownership = work.ledger.ownership
    if ownership is None or work.ledger.definition.at_most_once or not (of_living or ownership.claims_from):
        return BitMap64()
    owned = ownership.of_others(work.ledger.rows[State.REMOTE], None if of_living else _lost(work, ownership)).values()
    rows = BitMap64.union(ownership.claimed_rows, *owned)
    return rows - ownership.of_last_term(rows)


def _lost(work: UnitOfWork, ownership: Ownership) -> set[str]:
    """Return the owners from whom somebody lets messages be claimed, and who cannot be reached."""
    after_ms = work.state.definitions.replication.unreachable_after_ms
    allowed = ownership.others() if "" in ownership.claims_from else ownership.others() & ownership.claims_from
    return {owner for owner in allowed if work.liveness.is_lost(owner, after_ms=after_ms)}


def claim(work: UnitOfWork, rows: BitMap64, *, awaits_look: bool = False) -> BitMap64:
    """Claim those of `rows` that another instance owns, and may be claimed; returns the others (R110).

    What is to be granted `awaits_look`: another look must find its owner silent still, since this coordinator may stop, or sleep,
    between what it decides and its commit. What ends in the same commit needs none.
    """
    ownership = work.ledger.ownership
    foreign = BitMap64() if ownership is None else rows & work.ledger.rows[State.REMOTE]
    if ownership is None or not foreign:
        return rows
    for owner in ownership.of_others(foreign) if awaits_look else ():
        work.liveness.note_claim(work.ledger.definition.name, owner)
    transfer(work, foreign, ownership.instance, reason=CLAIMED, awaits_look=awaits_look)
    return rows - foreign


def end_claims(work: UnitOfWork) -> None:
    """Let what was claimed be granted, or give it back, by what was seen of its owner since (R110)."""
    ownership, queue = work.ledger.ownership, work.ledger.definition.name
    for owner, rows in list(ownership.claims.items()) if ownership is not None else ():
        stands = work.liveness.verdict(queue, owner)
        if stands is None:
            continue
        if stands:
            work.emit(Kind.CLAIM_CONFIRMED, rows)
        else:
            transfer(work, rows, owner, reason=RETURNED_CLAIM)
        work.liveness.forget_claim(queue, owner)


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
    owner, peers = command.owner, work.state.definitions.peers
    if owner is None and command.on:
        if len(peers) > 1:
            raise CallerError(
                "UNSUPPORTED_WRITE", what=what, reason="several instances own messages of it, and only one of them may be gone.",
                next_step=f"Name the one that is lost: --owner, one of {', '.join(sorted(peers))}.",
            )  # fmt: skip
        owner = next(iter(peers), None)
    known = {*peers, *work.state.instances.values(), *ownership.others()} - {ownership.instance}
    if owner is not None and owner not in known:
        raise ConfigError("UNKNOWN_PEER", peer=owner, nearest=nearest(owner, known))
    is_new = bool(ownership.claims_from) if owner is None else (owner in ownership.claims_from) != command.on
    if is_new:
        work.emit(Kind.PROXIED_TRANSFER, detail={"on": command.on} | ({} if owner is None else {"owner": owner}))
    return Done()


def transfer(work: UnitOfWork, rows: BitMap64, owner: str, *, reason: str | None = None, awaits_look: bool = False) -> None:
    """Record that rows belong to an instance from now on, in a term above all that they had; none of them is in the last term."""
    ownership = work.ledger.ownership
    assert ownership is not None, "the queue is replicated"
    term = 1 + ownership.last_term(rows)
    for deliveries, delivered in list(work.ledger.delivered.split(rows)):
        for cancels, part in list(work.ledger.cancelled.split(delivered)):
            detail: dict[str, Any] = {"term": term, "owner": owner, "deliveries": deliveries, "cancels": cancels}
            work.emit(Kind.TRANSFERRED, part, reason=reason, detail=detail | ({"awaits_look": True} if awaits_look else {}))


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
        with state.guard(ledger.definition.name):
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
    known = state.message_types[ledger.definition.message_type]
    # Of what was decided, its other origin says who owns it first.
    rows = (rows & ledger.entered) - ledger.barriers - known.membership(ledger.definition.name).known
    source = state.definitions.source_of(ledger.definition.name)
    if source in state.queues:
        # A letter starts with whoever dead-lettered it.
        rows -= state.queues[source].entered
    take_first_owner(ledger, rows, ledger.definition.initial_owner or instance, peer=peer, emit=emit)


def take_first_owner(ledger: QueueLedger, rows: BitMap64, owner: str, *, peer: str, emit: Emit) -> None:
    """Record that messages belong to another first owner, where that is the greater value: who published them, too, says so."""
    assert ledger.ownership is not None, "the queue is replicated"
    value = MessageValue(owner=owner)
    changed = ledger.ownership.lesser(ledger.rows, rows, value)
    if changed:
        detail = {"peer": peer, **value.told()}
        emit(Kind.REPLICATED, queue=ledger.definition.name, ranges=to_ranges(changed), reason=Kind.NAMED, detail=detail)


#: Most ranges of what one record says never was in a queue: with all that names them a record's detail stays below 16 MiB.
ABSENT_RANGES = 2**17

#: Most messages of it, each name of a message counted: who reads it refuses more than 2^24.
ABSENT_ROWS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, as it was read in the log of a peer."""

    #: The peer in whose log it was read.
    peer: str
    #: Who wants the messages, and whose they are by what was known there.
    requester: str
    owner: str
    #: The instances that have passed it on.
    passed: Sequence[str] = ()
    #: How many of the messages it wants, whoever gives them.
    limit: int = NAMED_MOST
    #: The earliest life of the messages, as far as the requester knows: none of them is gone in a later one.
    life: int = 0


def answer(work: UnitOfWork, asked: Asked, here: BitMap64, wanted: Mapping[str, BitMap64]) -> None:
    """Transfer the oldest that this instance owns and nobody of its own could take now, and pass on what others own.

    Of what its queue does not have the owner says that it is gone: nobody else could, and it would be asked for ever (R105). What
    one record cannot hold is asked for again, and told then.

    What of it is `here` is given as own bookmarks; all that is `wanted`, by the UUID of its origin, but messages of several names:
    one of these may be here, and another not.
    """
    ownership = work.ledger.ownership
    if ownership is None or asked.requester == ownership.instance:
        return
    rows = here & work.ledger.entered
    _grant(work, ownership, rows, asked)
    _pass_on(work, ownership, rows, asked)
    # A letter that is not in its queue is over, and news of that are under way.
    if asked.owner == ownership.instance and work.ledger.definition.underlying_topic is not None:
        absent = _absent(work, asked, here, wanted)
        if absent:
            told = {origin: [list(each) for each in ranges] for origin, ranges in absent.items()}
            work.emit(Kind.NOT_IN_QUEUE, detail={"origins": told, **_life(asked)})


def _left(ownership: Ownership, rows: BitMap64, asked: Asked) -> int:
    """Return how many more messages a request wants: it may come by several ways, and who asks may own some of them by now."""
    given = ownership.of_others(rows, {asked.requester})
    return min(asked.limit, NAMED_MOST) - sum(map(len, given.values()))


def _grant(work: UnitOfWork, ownership: Ownership, rows: BitMap64, asked: Asked) -> None:
    ledger, left = work.ledger, _left(ownership, rows, asked)
    # Where two owners wait for each other's, one of them gives.
    keeps = _keeps_all(ledger) or (ledger.definition.order_key is not None and asked.requester > ownership.instance)
    if ledger.paused or keeps or left <= 0 or not work.may_grant():
        # Who wants it asks again.
        return
    # What came back for later stays delayed until somebody takes it, also once it is due.
    free = BitMap64.union(ledger.rows[State.AVAILABLE], ledger.due(work.now_ms), ledger.rows[State.INACTIVE])
    free = (rows & free) - ownership.remote
    free -= ownership.of_last_term(free)
    if not ownership.claims:
        # Also on behalf of an owner that cannot answer (R109).
        free |= rows & (claimable(work) - ledger.not_due(work.now_ms))
    for subscription, _ in work.shares.polling(ledger, work.now_ms):
        if room_of(ledger, subscription) > 0 and not subscription.is_stopped:
            # What a barrier holds up here it cannot take; two owners might wait for each other's messages for ever.
            free -= work.visible_to_subscription(subscription, before_held(ledger, free))
    # Who asks again is given what is claimed now.
    given = claim(work, oldest(free, left), awaits_look=True)
    beyond = given & ledger.rows[State.INACTIVE]
    if beyond:
        # Their turn comes with the request: what was acknowledged before is gone (R83), and up to the others it activates (R84).
        acknowledged = beyond & ledger.deferred_after(work.now_ms)
        remove(work, acknowledged, Removal.ACKNOWLEDGED)
        given -= acknowledged
    if given:
        transfer(work, given, asked.requester)


def _pass_on(work: UnitOfWork, ownership: Ownership, rows: BitMap64, asked: Asked) -> None:
    left = _left(ownership, rows, asked)
    if ownership.instance in asked.passed or left <= 0:
        return
    for owner, owned in ownership.of_others(rows & work.ledger.rows[State.REMOTE]).items():
        known = ownership.passed_on.get((asked.requester, owner))
        is_repeated = known is not None and work.now_ms < known.at_ms + PASSED_ON_MS
        part = oldest(owned - known.rows if known is not None and is_repeated else owned, NAMED_MOST)
        if part and owner != asked.requester and owner not in asked.passed:
            passed, limit = [*asked.passed, ownership.instance], min(left, len(part))
            detail = {"requester": asked.requester, "owner": owner, "passed": passed, "limit": limit, **_life(asked)}
            work.emit(Kind.TRANSFER_REQUESTED, part, detail=detail)


def _absent(work: UnitOfWork, asked: Asked, here: BitMap64, wanted: Mapping[str, BitMap64]) -> dict[str, RangeArray]:
    """Return what is asked for and not in the queue, by origin: it never came into it, or its end was missed.

    What is not even here was left out when the peer was pulled, since its topic is not pulled; but what may not come through this
    peer may still come by another way, and what was published here under any of the own origins was never pulled. No more is
    returned than one record can hold.
    """
    state, own, ownership = work.state, work.state.journal_id, work.ledger.ownership
    assert ownership is not None, "the queue is replicated"
    origins, peer = state.message_types[work.ledger.definition.message_type].origins, state.definitions.peers[asked.peer]
    gone = here & work.ledger.rows[State.REMOVED]
    # Not in an earlier life than it is asked for: others have redriven it since.
    gone -= ownership.before_life(gone, asked.life)
    gone = work.transfer_delay.asked_again(asked.requester, gone, after_ms=OPEN_MS, now_ms=work.now_ms)
    absent = _named(origins, gone | (here - work.ledger.entered), own)
    for origin, there in wanted.items():
        instance = state.instances.get(origin, "")
        is_own = origin == own or instance == ownership.instance
        if not is_own and (instance == asked.peer or peer.passes(instance, origins.groups.get(instance, instance))):
            left_out = there - origins.held.get(origin, BitMap64())
            absent[origin] = absent.get(origin, BitMap64()) | left_out
    return _fitting(absent)


def _named(origins: Origins, rows: BitMap64, own: str) -> dict[str, BitMap64]:
    """Return all names of the oldest of `rows`, as many as fit: who asks may know a message by any one of them."""
    rows = oldest(rows, ABSENT_ROWS)
    names = dict(origins.of(rows, own=own))
    while sum(map(len, names.values())) > ABSENT_ROWS or sum(len(to_ranges(part)) for part in names.values()) > ABSENT_RANGES:
        rows = oldest(rows, len(rows) // 2)
        names = dict(origins.of(rows, own=own))
    return names


def _fitting(absent: Mapping[str, BitMap64]) -> dict[str, RangeArray]:
    """Return the ranges of what never was in the queue, by origin, as far as one record can hold them."""
    found, rows_left, ranges_left = dict[str, RangeArray](), ABSENT_ROWS, ABSENT_RANGES
    for origin, rows in absent.items():
        ranges = RangeArray(to_ranges(oldest(rows, rows_left)).edges[: 2 * ranges_left])
        rows_left, ranges_left = rows_left - count_rows(ranges), ranges_left - len(ranges)
        if len(ranges):
            found[origin] = ranges
    return found


def _life(asked: Asked) -> dict[str, int]:
    return {"life": asked.life} if asked.life else {}
