"""Requests of other instances: granted by the owner of the messages, and passed on by everybody else (R103, R105)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import RangeArray, count_rows, oldest, to_ranges
from spark_queue.core.deciding.barrier import before_held
from spark_queue.core.deciding.instances.claims import claim, claimable
from spark_queue.core.deciding.instances.transfers import NAMED_MOST, OPEN_MS, keeps_all, transfer
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.shares import room_of
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.message_files.origins import Origins
from spark_queue.core.records import Removal
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import PASSED_ON_MS, Ownership

#: Most ranges of messages that one record declares never to have been in a queue: with all that names them its detail stays
#: below 16 MiB.
ABSENT_RANGES = 2**17

#: Most messages of it, each name of a message counted: its readers refuse more than 2^24.
ABSENT_ROWS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, as it was read in the log of a peer."""

    #: The peer in whose log it was read.
    peer: str
    #: The asker for the messages, and their owner as known there.
    requester: str
    owner: str
    #: The instances that have passed it on.
    passed: Sequence[str]
    #: How many of the messages it wants, from any owner.
    limit: int
    #: The earliest life of the messages, as far as the requester knows: none of them is gone in a later one.
    life: int


def answer(work: UnitOfWork, asked: Asked, here: BitMap64, wanted: Mapping[str, BitMap64]) -> None:
    """Transfer the oldest that this instance owns and could not lease itself now, and pass on requests for those of others.

    Messages that its queue does not have are declared gone by the owner: nobody else could, and requests for them would never end
    (R105). Those that one record cannot hold are asked for again, and follow then.

    Those that are `here` are given as own bookmarks; all `wanted` ones, by the UUID of their origin, but messages of several names:
    one of these may be here, and another not.
    """
    ownership = work.ledger.ownership
    if asked.requester == ownership.instance:
        return
    rows = here & work.ledger.entered
    _grant(work, ownership, rows, asked)
    _pass_on(work, ownership, rows, asked)
    # A letter that is not in its queue is over, and news of that are under way.
    if asked.owner == ownership.instance and work.ledger.definition.underlying_topic is not None:
        absent = _absent(work, asked, here, wanted)
        if absent:
            origins = {origin: tuple(ranges) for origin, ranges in absent.items()}
            work.emit(records.NotInQueue(origins=origins, life=asked.life))


def _left(ownership: Ownership, rows: BitMap64, asked: Asked) -> int:
    """Return how many more messages a request wants: it may come by several ways, and its asker may own some of them by now."""
    given = ownership.of_others(rows, {asked.requester})
    return min(asked.limit, NAMED_MOST) - sum(map(len, given.values()))


def _grant(work: UnitOfWork, ownership: Ownership, rows: BitMap64, asked: Asked) -> None:
    ledger, left = work.ledger, _left(ownership, rows, asked)
    # Where two owners wait for each other's, one of them gives.
    keeps = keeps_all(ledger) or (ledger.definition.order_key is not None and asked.requester > ownership.instance)
    if ledger.paused or keeps or left <= 0 or not work.may_grant():
        # The asker asks again.
        return
    # A message that came back for later stays delayed until it is granted, also once it is due.
    free = BitMap64.union(ledger.rows[State.AVAILABLE], ledger.due(work.now_ms), ledger.rows[State.INACTIVE])
    free = (rows & free) - ownership.remote
    free -= ownership.of_last_term(free)
    if not ownership.claims:
        # Also on behalf of an owner that cannot answer (R109).
        free |= rows & (claimable(work) - ledger.not_due(work.now_ms))
    for subscription, _ in work.shares.polling(ledger, work.now_ms):
        if room_of(ledger, subscription) > 0 and not subscription.is_stopped:
            # Messages that a barrier holds up here cannot be given; two owners might wait for each other's messages for ever.
            free -= work.visible_to_subscription(subscription, before_held(ledger, free))
    # An asker that asks again is given messages that are claimed now.
    given = claim(work, oldest(free, left), awaits_look=True)
    beyond = given & ledger.rows[State.INACTIVE]
    if beyond:
        # Their turn comes with the request: those acknowledged before are gone (R83), and up to the others it activates (R84).
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
            passed, limit = (*asked.passed, ownership.instance), min(left, len(part))
            body = records.TransferRequested(requester=asked.requester, owner=owner, passed=passed, limit=limit, life=asked.life)
            work.emit(body, part)


def _absent(work: UnitOfWork, asked: Asked, here: BitMap64, wanted: Mapping[str, BitMap64]) -> dict[str, RangeArray]:
    """Return the messages that are asked for and not in the queue, by origin: they never came into it, or their end was missed.

    Those not even here were left out when the peer was pulled, since their topic is not pulled; but those that may not come
    through this peer may still come by another way, and those published here under any of the own origins were never pulled. No
    more are returned than one record can hold.
    """
    state, own, ownership = work.state, work.state.journal_id, work.ledger.ownership
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
    """Return all names of the oldest of `rows`, as many as fit: the asker may know a message by any one of them."""
    rows = oldest(rows, ABSENT_ROWS)
    names = dict(origins.of(rows, own=own))
    while sum(map(len, names.values())) > ABSENT_ROWS or sum(len(to_ranges(part)) for part in names.values()) > ABSENT_RANGES:
        rows = oldest(rows, len(rows) // 2)
        names = dict(origins.of(rows, own=own))
    return names


def _fitting(absent: Mapping[str, BitMap64]) -> dict[str, RangeArray]:
    """Return the ranges of messages that never were in the queue, by origin, as far as one record can hold them."""
    found, rows_left, ranges_left = dict[str, RangeArray](), ABSENT_ROWS, ABSENT_RANGES
    for origin, rows in absent.items():
        ranges = RangeArray(to_ranges(oldest(rows, rows_left)).edges[: 2 * ranges_left])
        rows_left, ranges_left = rows_left - count_rows(ranges), ranges_left - len(ranges)
        if len(ranges):
            found[origin] = ranges
    return found
