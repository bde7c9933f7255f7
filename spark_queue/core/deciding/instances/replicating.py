"""Applying news of peers about messages: the greater value is true, wherever it comes from (DESIGN 17.3, 17.4).

Decisions of an origin about its messages, once: the replicated queues of each, whether it is a barrier, and its first owner (R129).
Also the commands of operators about instances rather than queues (DESIGN 17.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

from msgspec import structs
from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import below, to_bitmap, to_ranges
from spark_queue.core.commands import Caller, DrainTo, ForgetPeer, ResetPeer, Restored, ReturnWithout, SkipLost
from spark_queue.core.deciding.instances.liveness import Liveness
from spark_queue.core.deciding.instances.naming import OtherNames, take_first_owner, take_known_names, take_names
from spark_queue.core.deciding.instances.requests import Asked, answer
from spark_queue.core.deciding.instances.transfers import note_ends, transfer
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.definitions.definition import Disagreement
from spark_queue.core.records import (
    CLAIMED,
    Body,
    Decided,
    Emit,
    Kind,
    PeerChange,
    Record,
    RecordColumns,
    Removal,
    Replicated,
    TransferRequested,
)
from spark_queue.core.replies import Done, Drained, Forgotten
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import MessageValue, Stage, value_of
from spark_queue.errors import CallerError, ConfigError, JournalError, nearest


def decide_all_published(state: JournalState, emit: Emit) -> None:
    """Record what nobody has said yet of what was published here: a queue begins, or was set aside meanwhile."""
    for name, known in state.message_types.items() if state.definitions.journal.instance is not None else ():
        if known.entered_until:
            decide_published(state, name, to_bitmap([(0, known.entered_until)]), emit)


def decide_published(state: JournalState, message_type: str, rows: BitMap64, emit: Emit) -> None:
    """Record the decisions about those of `rows` that were published here, for every replicated queue that lacks them."""
    known = state.message_types[message_type]
    for ledger in state.queues_of(message_type):
        if not ledger.is_replicated:
            continue
        undecided = known.origins.not_pulled(rows - known.membership(ledger.definition.name).known)
        if undecided:
            with state.guard(ledger.definition.name):
                decide(state, ledger, undecided, emit)


def decide(state: JournalState, ledger: QueueLedger, rows: BitMap64, emit: Emit) -> None:
    """Record whether some undecided messages are in a queue."""
    queue, instance = ledger.definition, str(state.definitions.journal.instance)
    members, barriers = state.find_members(ledger, rows)
    owner = state.definitions.first_owner(queue, instance)
    within, held, outside = records.Decided(owner=owner), records.Decided(barrier=True), records.Decided()
    for part, body in ((members, within), (barriers, held), (rows - members - barriers, outside)):
        # Where a file is missing the queue is set aside by now, and nothing is said.
        if part and queue.name in state.queues:
            emit(body, queue=queue.name, message_type=queue.message_type, ranges=to_ranges(part))


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The news in one record of a peer about messages of a queue."""

    queue: str
    #: That of the queue when the peer said it: bookmarks are of messages of this type.
    message_type: str
    #: The messages, by the UUID of their origin, as bookmarks there.
    rows: Mapping[str, BitMap64]
    #: One of three: their value from now on, as it is recorded here; the word of their origin, once, on their membership (R129);
    #: or a request for them.
    replicated: Replicated | None = None
    decided: Decided | None = None
    requested: TransferRequested | None = None
    #: Why they ended, or what moved them.
    reason: str | None = None
    #: Of a request: those of `rows` that are names of a message which has several.
    of_several: Mapping[str, BitMap64] = field(default_factory=dict)

    @property
    def value(self) -> MessageValue | None:
        """Their value from now on; None where it is no news of that."""
        return None if self.replicated is None else value_of(self.replicated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """Some records of a peer, one after the other, as far as they matter here."""

    #: The name of the peer's instance, and the UUID of its journal.
    peer: str
    journal: str
    #: Number of the last of them, and its SHA-256.
    record: int
    digest: str
    #: UUID of the origin of messages that are published there, where its journal was restored from a backup.
    origin: str = ""
    #: Further names of messages that are here already; the news may use these.
    names: Sequence[OtherNames] = ()
    news: Sequence[News] = ()
    #: Replicated queues that it does not have: nobody there decides whether its messages are in them.
    missing_queues: Sequence[str] = ()
    #: How many of its messages were gone before they were pulled.
    lost: int = 0
    #: The last record of which that is no gap, where it has changed; None where it has not. See `Watermark`.
    gaps_after: int | None = None
    #: How its definitions and the own break rules, where that has changed; None where it has not.
    disagreements: Sequence[Disagreement] | None = None


def apply_pulled(state: JournalState, pulled: Pulled, emit: Emit, work_on: Callable[[str], UnitOfWork]) -> None:
    """Record the changes that news make here, and how far the peer is pulled: one commit (DESIGN 17.3)."""
    for names in pulled.names:
        take_names(state, names, peer=pulled.peer, emit=emit)
    for news in pulled.news:
        with state.guard(news.queue):
            _take_news(state, news, peer=pulled.peer, emit=emit, work_on=work_on)
    _decide_for(state, pulled, emit)
    differs = pulled.disagreements
    body = records.Pulled(
        peer=pulled.peer,
        journal=pulled.journal,
        number=pulled.record,
        digest=pulled.digest,
        origin_uuid=pulled.origin,
        lost=pulled.lost,
        gaps_after=pulled.gaps_after,
        disagreements=None if differs is None else tuple((each.rule, each.queue, each.reason) for each in differs),
        missed=tuple(sorted(filter(state.definitions.is_replicated, state.troubles))),
    )
    emit(body)


def _take_news(state: JournalState, news: News, *, peer: str, emit: Emit, work_on: Callable[[str], UnitOfWork]) -> None:
    if news.decided is not None:
        _take_decision(state, news, news.decided, peer=peer, emit=emit)
        return
    ledger = state.queues.get(news.queue)
    # News of an earlier queue of this name may be about messages of another type.
    if ledger is None or not ledger.is_replicated or ledger.definition.message_type != news.message_type:
        return
    here = _here(state, news.message_type, news.rows)
    if news.requested is not None:
        wanted = {origin: there - news.of_several.get(origin, BitMap64()) for origin, there in news.rows.items()}
        answer(work_on(news.queue), _asked(peer, news.requested), here, wanted)
    if news.replicated is not None:
        _take_value(ledger, news, _concerned(state, news.queue, value_of(news.replicated)) & here, work_on=work_on, emit=emit)


def _take_value(ledger: QueueLedger, news: News, rows: BitMap64, *, work_on: Callable[[str], UnitOfWork], emit: Emit) -> None:
    """Record the value of messages where it is greater than what is known here."""
    assert news.replicated is not None, "it is news of a value"
    value = value_of(news.replicated)
    # A barrier is owned by nobody: each instance releases it when nothing stands before it here (R117).
    letters = rows - ledger.entered
    changed = letters | ledger.ownership.lesser(ledger.rows, rows - letters - ledger.barriers, value)
    if ledger.deferred:
        changed -= _end_deferred(work_on(news.queue), changed, value)
    if value.stage != Stage.PRESENT:
        note_ends(work_on(news.queue), changed)
    if changed:
        emit(news.replicated, queue=news.queue, ranges=to_ranges(changed), reason=news.reason)


def _asked(peer: str, body: TransferRequested) -> Asked:
    """Return the request in the log of a peer."""
    return Asked(peer=peer, requester=body.requester, owner=body.owner, passed=body.passed, limit=body.limit, life=body.life)


def _take_decision(state: JournalState, news: News, decided: Decided, *, peer: str, emit: Emit) -> None:
    """Record what a peer says of messages that are here, and who owns them first: the greater of two, where two origins say it."""
    if news.message_type not in state.message_types:
        return
    known = state.message_types[news.message_type]
    # Also of messages published here: to another, too, or without the queue, so that another has decided.
    here = _here(state, news.message_type, news.rows)
    told = known.membership(news.queue)
    owner, new = decided.owner, here - told.known
    if owner is not None or decided.barrier:
        # It was published to another, too, where it is in the queue.
        new |= told.outside(here)
    if new:
        emit(decided, queue=news.queue, message_type=news.message_type, ranges=to_ranges(new))
    ledger = state.queues.get(news.queue)
    if owner is None or ledger is None or not ledger.is_replicated or ledger.definition.message_type != news.message_type:
        return
    take_first_owner(ledger, (here & ledger.entered) - ledger.barriers, owner, peer=peer, emit=emit)


def _decide_for(state: JournalState, pulled: Pulled, emit: Emit) -> None:
    """Decide about messages about which nobody else will.

    These are of a peer that does not have a queue whose first owner is here, and those published here before the journal was
    restored, and came back.
    """
    instance, restored = state.definitions.journal.instance, bool(state.peer_changes.restorations)
    for name, ledger in list(state.queues.items()) if restored or pulled.missing_queues else ():
        origins = {instance} if restored else set()
        if name in pulled.missing_queues and ledger.definition.initial_owner == instance:
            origins.add(pulled.peer)
        if not ledger.is_replicated or not origins:
            continue
        known = state.message_types[ledger.definition.message_type]
        theirs = (rows for origin, rows in known.origins.pulled.items() if state.instances.get(origin) in origins)
        undecided = BitMap64.union(BitMap64(), *theirs) - known.membership(name).known
        if undecided:
            with state.guard(name):
                decide(state, ledger, undecided, emit)


def reread_peers(state: JournalState, emit: Emit) -> bool:
    """Let peers be read again for queues that missed their news while set aside, and are back; returns whether any is (R122)."""
    again = [peer for peer, known in state.pulled.items() if peer in state.definitions.peers and known.missed & state.queues.keys()]
    for peer in again:
        known = state.pulled[peer]
        for name in sorted(known.missed & state.queues.keys()):
            with state.guard(name):
                take_known_names(state, state.queues[name], peer=peer, emit=emit)
        emit(records.Pulled(peer=peer, journal=known.journal, number=-1, digest="", origin_uuid=known.origin))
    return bool(again)


def end_letters_elsewhere(state: JournalState, record: Record, emit: Emit) -> None:
    """End dead letters with a message that another instance settled or redrove: they are of one life (DESIGN 17.4)."""
    source = state.queues.get(str(record.queue)) if record.kind == Kind.REPLICATED else None
    letters = None if source is None else state.queues.get(source.definition.dead_letter_queue or "")
    if source is None or letters is None:
        return
    # Also of those that died in their own queue.
    over = (to_bitmap(record.ranges) & letters.entered) - letters.rows[State.REMOVED] - source.rows[State.DEAD]
    if over:
        emit(records.Removed(), queue=letters.definition.name, ranges=to_ranges(over), reason=Removal.ACKNOWLEDGED)


def _end_deferred(work: UnitOfWork, rows: BitMap64, value: MessageValue) -> BitMap64:
    """Remove messages acknowledged before their turn that have another owner now, or are dead: in one life, gone is greater (R83).

    Returns these messages.
    """
    if value.stage == Stage.GONE:
        return BitMap64()
    acknowledged = rows & work.ledger.deferred_after(work.now_ms)
    ended = work.ledger.ownership.of_life(acknowledged, value.life)
    remove(work, ended, Removal.ACKNOWLEDGED)
    return ended


def _here(state: JournalState, message_type: str, rows: Mapping[str, BitMap64]) -> BitMap64:
    """Return the own bookmarks of messages of any origin; those that are not here have no news."""
    known = state.message_types[message_type]
    own, until, origins = state.journal_id, known.entered_until, known.origins
    published = (origins.published_here(origin, there, own=own, until=until) for origin, there in rows.items())
    return BitMap64.union(BitMap64(), *published, *(origins.here(origin, there) for origin, there in rows.items()))


def _concerned(state: JournalState, queue: str, value: MessageValue) -> BitMap64:
    """Return the messages that news of a queue can be about: of a dead-letter queue, what is dead in that life."""
    source = state.queues.get(state.definitions.source_of(queue) or "")
    if source is None or value.stage != Stage.PRESENT:
        return state.queues[queue].entered
    return source.ownership.of_life(source.rows[State.DEAD], value.life)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersWork:
    """Everything that the handler of such a command needs."""

    state: JournalState
    liveness: Liveness
    now_ms: int
    request: str
    emit_record: Emit
    #: The caller; None where there are no principals.
    caller: Caller | None
    #: Makes the unit of work of a queue.
    work_on: Callable[[str], UnitOfWork]

    def emit(self, body: Body, **envelope: Unpack[RecordColumns]) -> None:
        """Record something for this request."""
        signature = {} if self.caller is None else self.caller.signature()
        self.emit_record(structs.replace(body, request=self.request, by=signature), **envelope)

    def check_peer(self, peer: str) -> None:
        """Refuse a name that is no peer's."""
        peers = self.state.definitions.peers
        if peer not in peers:
            raise ConfigError("UNKNOWN_PEER", peer=peer, nearest=nearest(peer, peers))

    def note(self, change: PeerChange, peer: str) -> None:
        """Record what somebody said of a peer."""
        self.emit(records.PeerChanged(peer=peer), reason=change)


def skip_or_reset(work: PeersWork, command: SkipLost | ResetPeer) -> Done:
    """Go on with a peer without the messages that it let go unpulled, or read the journal that it has now from its beginning."""
    work.check_peer(command.peer)
    work.note(PeerChange.SKIPPED if isinstance(command, SkipLost) else PeerChange.RESET, command.peer)
    return Done()


def forget(work: PeersWork, command: ForgetPeer) -> Forgotten:
    """Claim the messages of a peer that is gone for good, but for those of at-most-once queues; nothing waits for it any more."""
    peer = command.peer
    work.check_peer(peer)
    owned_first = [queue.name for queue in work.state.definitions.queues.values() if queue.initial_owner == peer]
    if owned_first:
        reason, next_step = f"it is the initial_owner of queue '{owned_first[0]}'.", "Name another one there first: `sparkq apply`."
        raise ConfigError("DEFINITION_IN_USE", what="Instance", name=peer, reason=reason, next_step=next_step)
    heard_ms, after_ms = work.liveness.heard_ms(peer, now_ms=work.now_ms), work.state.definitions.replication.unreachable_after_ms
    if heard_ms is not None and heard_ms < after_ms:
        raise JournalError("PEER_LIVES", peer=peer, heard_s=heard_ms // 1_000, after_s=after_ms // 1_000)
    for name in filter(work.state.definitions.is_replicated, work.state.troubles):
        # The peer's messages of a queue that is set aside would never be claimed.
        raise work.state.troubles[name]
    claimed, left = 0, dict[str, int]()
    for name, ledger in work.state.queues.items():
        rows = ledger.ownership.of_others(ledger.rows[State.REMOTE], {peer}).get(peer, BitMap64())
        rows |= ledger.ownership.claims.get(peer, BitMap64())
        stay = rows if ledger.definition.at_most_once else ledger.ownership.of_last_term(rows)
        if stay:
            left[name] = len(stay)
        rows = rows - stay
        if rows:
            transfer(work.work_on(name), rows, ledger.ownership.instance, reason=CLAIMED)
            claimed += len(rows)
    work.note(PeerChange.FORGOTTEN, peer)
    return Forgotten(claimed=claimed, left=left)


def drain(work: PeersWork, command: DrainTo) -> Drained:
    """Transfer own messages to a peer, but for leased ones: these follow once their lease has ended."""
    work.check_peer(command.peer)
    if work.liveness.restored is not None:
        raise work.liveness.restored
    transferred, left, stuck = 0, dict[str, int](), dict[str, str]()
    pulled = work.liveness.pulled_here.get(command.peer)
    pulled = -1 if pulled is None else pulled
    for name in work.state.definitions.peers[command.peer].queues:
        ledger = work.state.ledger(name)
        leased = ledger.rows[State.LEASED]
        acknowledged = ledger.rows[State.INACTIVE] & ledger.deferred_after(work.now_ms)
        if acknowledged:
            # Its turn would only show that it is done (R83).
            remove(work.work_on(name), acknowledged, Removal.ACKNOWLEDGED)
        free = BitMap64.union(*(ledger.rows[state] for state in (State.AVAILABLE, State.DELAYED, State.INACTIVE)))
        differs = [each.reason for each in work.state.disagreements.get(command.peer, ()) if each.hinders(name)]
        there = BitMap64() if differs else _there(work, ledger, free, command.peer)
        stay = free - (BitMap64() if there is None else there)
        # Messages that entered before the last record that the peer has pulled would be there by now.
        known = work.state.message_types[ledger.definition.message_type]
        never = BitMap64() if there is None else below(stay, known.entered_before(pulled + 1))
        if free and differs:
            stuck[name] = differs[0]
        elif never:
            stuck[name] = (
                f"{len(never)} of them did not reach it: it does not pull their topic or the name that they were published to."
            )
        stay |= ledger.ownership.of_last_term(free)
        free -= stay
        if leased or stay:
            left[name] = len(leased) + len(stay)
        if (leased or stay) and ledger.definition.order_key is not None:
            # Of one key the oldest is delivered first, wherever it is.
            left[name] += len(free)
        elif free:
            transfer(work.work_on(name), free, command.peer)
            transferred += len(free)
    record = -1 if transferred or left else command.record
    if record < 0 and not left:
        # By this the last transfer is known to have been pulled.
        record = work.state.next_record
        work.note(PeerChange.DRAINED, command.peer)
    return Drained(transferred=transferred, left=left, stuck=stuck, record=record, is_pulled=0 <= record <= pulled)


def _there(work: PeersWork, ledger: QueueLedger, rows: BitMap64, peer: str) -> BitMap64 | None:
    """Return those of some messages that the log of a peer shows to be there, or None where that is not known yet.

    Of others it would not hear the owner.
    """
    message_type, state = ledger.definition.message_type, work.state
    there = work.liveness.there(peer, message_type)
    if there is None:
        return None
    names = state.message_types[message_type].origins.of(rows, own=state.journal_id)
    return rows & _here(state, message_type, {origin: part & there[origin] for origin, part in names if origin in there})


def return_without(work: PeersWork, command: ReturnWithout) -> Done:
    """Wait no more until this instance, which returns, has heard from a peer."""
    work.check_peer(command.peer)
    known = work.state.returning
    if known is None:
        reason = "this instance is not returning: it waits for no peer."
        raise CallerError("UNSUPPORTED_WRITE", what="`sparkq return`", reason=reason, next_step="Nothing to do.")
    if command.peer not in known.excused_peers:
        record_returning(work.emit, joins=known.joins, excused_peers=known.excused_peers | {command.peer}, queues=known.queues)
    return Done()


def record_returning(emit: Emit, *, joins: bool, excused_peers: Collection[str] = (), queues: Collection[str] = ()) -> None:
    """Record that this instance grants nothing that it owns, or nothing of some queues, before it has heard from its peers."""
    emit(records.Returning(on=True, joins=joins, excused_peers=tuple(sorted(excused_peers)), queues=tuple(sorted(queues))))


def restored(work: PeersWork, command: Restored) -> Done:
    """Give another origin to messages that entered since the journal was restored, or will: lost rows may have their bookmarks."""
    found = work.liveness.restored
    if found is None and command.after is None:
        reason = "no peer has pulled anything of it that its log lacks."
        next_step = "If an instance that pulls from here says PEER_RESTORED, repeat it with the --after given there."
        raise CallerError("UNSUPPORTED_WRITE", what="`sparkq mark-restored`", reason=reason, next_step=next_step)
    first = int(str(found.facts["since"])) if found is not None else int(command.after or 0) + 1
    since = {name: known.entered_before(first) for name, known in work.state.message_types.items()}
    work.emit(records.Restored(origin_uuid=command.origin, since=since))
    return Done()
