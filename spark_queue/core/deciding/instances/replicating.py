"""Taking over what peers say of messages: the greater value is true, wherever it comes from (DESIGN 17.3, 17.4).

What an origin says of its messages, once: in which replicated queues each is, as a barrier or not, and whose it is first (R129).
Also the commands of operators about instances rather than queues (DESIGN 17.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, to_bitmap, to_ranges
from spark_queue.core.commands import Caller, DrainTo, ForgetPeer, ResetPeer, Restored, ReturnWithout, SkipLost
from spark_queue.core.deciding.instances.liveness import Liveness
from spark_queue.core.deciding.instances.naming import OtherNames, take_first_owner, take_known_names, take_names
from spark_queue.core.deciding.instances.requests import Asked, answer
from spark_queue.core.deciding.instances.transfers import note_ends, transfer
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.definitions.definition import Disagreement
from spark_queue.core.records import CLAIMED, Emit, Kind, PeerChange, Record, Removal
from spark_queue.core.replies import Done, Drained, Forgotten
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.errors import CallerError, ConfigError, JournalError, nearest


def decide_all_published(state: JournalState, emit: Emit) -> None:
    """Record what nobody has said yet of what was published here: a queue begins, or was set aside meanwhile."""
    for name, known in state.message_types.items():
        if known.entered_until:
            decide_published(state, name, to_bitmap([(0, known.entered_until)]), emit)


def decide_published(state: JournalState, message_type: str, rows: BitMap64, emit: Emit) -> None:
    """Record what those of `rows` are that were published here, for every replicated queue, unless it was said."""
    known = state.message_types[message_type]
    for ledger in state.queues_of(message_type):
        if ledger.ownership is None:
            continue
        undecided = known.origins.not_pulled(rows - known.membership(ledger.definition.name).known)
        if undecided:
            with state.guard(ledger.definition.name):
                decide(state, ledger, undecided, emit)


def decide(state: JournalState, ledger: QueueLedger, rows: BitMap64, emit: Emit) -> None:
    """Record what some messages are for a queue, of which nobody has said that."""
    queue, instance = ledger.definition, str(state.definitions.journal.instance)
    members, barriers = state.find_members(ledger, rows)
    owner = state.definitions.first_owner(queue, instance)
    for part, detail in ((members, {"owner": owner}), (barriers, {"barrier": True}), (rows - members - barriers, {})):
        # Where a file is missing the queue is set aside by now, and nothing is said.
        if part and queue.name in state.queues:
            emit(Kind.DECIDED, queue=queue.name, message_type=queue.message_type, ranges=to_ranges(part), detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The news in one record of a peer about messages of a queue."""

    queue: str
    #: That of the queue when the peer said it: bookmarks are of messages of this type.
    message_type: str
    #: The messages, by the UUID of their origin, as bookmarks there.
    rows: Mapping[str, BitMap64]
    #: Their value from now on; None for a transfer request, and for a decision.
    value: MessageValue | None
    #: Whether it says what the messages are, once, as their origin decided: in the queue or not (R129).
    is_decision: bool = False
    #: Why they ended, or what moved them.
    reason: str | None = None
    #: Counts, and of a dead letter its source and error; of a request who asks whom.
    detail: Mapping[str, Any] = field(default_factory=dict)
    #: Of a request: those of `rows` that are names of a message which has several.
    of_several: Mapping[str, BitMap64] = field(default_factory=dict)

    @property
    def is_request(self) -> bool:
        """Whether somebody asks for the messages."""
        return self.value is None and not self.is_decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """Some records of a peer, one after the other, as far as they matter here."""

    #: The name of the peer's instance, and the UUID of its journal.
    peer: str
    journal: str
    #: Number of the last of them, and its SHA-256.
    record: int
    digest: str
    #: UUID of the origin of what is published there, where its journal was restored from a backup.
    origin: str = ""
    #: Further names of messages that are here already; the news may tell them by these.
    names: Sequence[OtherNames] = ()
    news: Sequence[News] = ()
    #: Replicated queues that it does not have: nobody there says what its messages are for them.
    without: Sequence[str] = ()
    #: How many of its messages were gone before they were pulled.
    lost: int = 0
    #: The last record of which that is no gap, where it has changed; None where it has not. See `Watermark`.
    gaps_after: int | None = None
    #: How its definitions and the own break rules, where that has changed; None where it has not.
    disagreements: Sequence[Disagreement] | None = None


def take(state: JournalState, pulled: Pulled, emit: Emit, work_on: Callable[[str], UnitOfWork]) -> None:
    """Record what news change here, and how far the peer is pulled: one commit (DESIGN 17.3)."""
    for names in pulled.names:
        take_names(state, names, peer=pulled.peer, emit=emit)
    for news in pulled.news:
        with state.guard(news.queue):
            _take_news(state, news, peer=pulled.peer, emit=emit, work_on=work_on)
    _decide_for(state, pulled, emit)
    detail = {"peer": pulled.peer, "journal": pulled.journal, "number": pulled.record, "digest": pulled.digest}
    missed = sorted(filter(state.definitions.is_replicated, state.troubles))
    further = {"lost": pulled.lost, "origin_uuid": pulled.origin, "missed": missed}
    detail |= {name: value for name, value in further.items() if value}
    if pulled.gaps_after is not None:
        detail["gaps_after"] = pulled.gaps_after
    if pulled.disagreements is not None:
        detail["disagreements"] = [[each.rule, each.queue, each.reason] for each in pulled.disagreements]
    emit(Kind.PULLED, detail=detail)


def _take_news(state: JournalState, news: News, *, peer: str, emit: Emit, work_on: Callable[[str], UnitOfWork]) -> None:
    if news.is_decision:
        _take_decision(state, news, peer=peer, emit=emit)
        return
    ledger = state.queues.get(news.queue)
    # News of an earlier queue of this name may be about messages of another type.
    if ledger is None or ledger.ownership is None or ledger.definition.message_type != news.message_type:
        return
    here = _here(state, news.message_type, news.rows)
    if news.value is None:
        wanted = {origin: there - news.of_several.get(origin, BitMap64()) for origin, there in news.rows.items()}
        answer(work_on(news.queue), Asked(peer=peer, **news.detail), here, wanted)
        return
    rows = here & _concerned(state, news)
    # A barrier is owned by nobody: each instance releases it when nothing stands before it here (R117).
    letters = rows - ledger.entered
    changed = letters | ledger.ownership.lesser(ledger.rows, rows - letters - ledger.barriers, news.value)
    if ledger.deferred:
        changed -= _end_deferred(work_on(news.queue), changed, news.value)
    if news.value.stage != Stage.PRESENT:
        note_ends(work_on(news.queue), changed)
    if changed:
        detail = {**news.detail, "peer": peer, **news.value.told()}
        emit(Kind.REPLICATED, queue=news.queue, ranges=to_ranges(changed), reason=news.reason, detail=detail)


def _take_decision(state: JournalState, news: News, *, peer: str, emit: Emit) -> None:
    """Record what a peer says of messages that are here, and who owns them first: the greater of two, where two origins say it."""
    if news.message_type not in state.message_types:
        return
    known = state.message_types[news.message_type]
    # Also of what was published here: to another, too, or without the queue, so that somebody else has said it.
    here = _here(state, news.message_type, news.rows)
    told = known.membership(news.queue)
    owner, is_barrier = news.detail.get("owner"), news.detail.get("barrier", False)
    new = here - told.known
    if owner is not None or is_barrier:
        # It was published to another, too, where it is in the queue.
        new |= told.outside(here)
    if new:
        emit(Kind.DECIDED, queue=news.queue, message_type=news.message_type, ranges=to_ranges(new), detail=news.detail)
    ledger = state.queues.get(news.queue)
    if owner is None or ledger is None or ledger.ownership is None or ledger.definition.message_type != news.message_type:
        return
    take_first_owner(ledger, (here & ledger.entered) - ledger.barriers, owner, peer=peer, emit=emit)


def _decide_for(state: JournalState, pulled: Pulled, emit: Emit) -> None:
    """Decide about messages of which nobody else will say what they are.

    These are of a peer that does not have a queue whose first owner is here, and what was published here before the journal was
    restored, and came back.
    """
    instance, restored = state.definitions.journal.instance, bool(state.peer_changes.restorations)
    for name, ledger in list(state.queues.items()) if restored or pulled.without else ():
        origins = {instance} if restored else set()
        if name in pulled.without and ledger.definition.initial_owner == instance:
            origins.add(pulled.peer)
        if ledger.ownership is None or not origins:
            continue
        known = state.message_types[ledger.definition.message_type]
        theirs = (rows for origin, rows in known.origins.pulled.items() if state.instances.get(origin) in origins)
        undecided = BitMap64.union(BitMap64(), *theirs) - known.membership(name).known
        if undecided:
            with state.guard(name):
                decide(state, ledger, undecided, emit)


def hear_again(state: JournalState, emit: Emit) -> bool:
    """Let peers be read again whose news a queue has missed that was set aside and is back; returns whether any is (R122)."""
    again = [peer for peer, known in state.pulled.items() if peer in state.definitions.peers and known.missed & state.queues.keys()]
    for peer in again:
        known = state.pulled[peer]
        for name in sorted(known.missed & state.queues.keys()):
            with state.guard(name):
                take_known_names(state, state.queues[name], peer=peer, emit=emit)
        origin = {"origin_uuid": known.origin} if known.origin else {}
        emit(Kind.PULLED, detail={"peer": peer, "journal": known.journal, "number": -1, "digest": "", **origin})
    return bool(again)


def end_letters_elsewhere(state: JournalState, record: Record, emit: Emit) -> None:
    """Record that dead letters are over whose message another instance settled or redrove: they are of one life (DESIGN 17.4)."""
    source = state.queues.get(str(record.queue)) if record.kind == Kind.REPLICATED else None
    letters = None if source is None else state.queues.get(source.definition.dead_letter_queue or "")
    if source is None or letters is None:
        return
    # Also of those that died in their own queue.
    over = (to_bitmap(record.ranges) & letters.entered) - letters.rows[State.REMOVED] - source.rows[State.DEAD]
    if over:
        emit(Kind.REMOVED, queue=letters.definition.name, ranges=to_ranges(over), reason=Removal.ACKNOWLEDGED)


def _end_deferred(work: UnitOfWork, rows: BitMap64, value: MessageValue) -> BitMap64:
    """Remove what was acknowledged here before its turn and has another owner now, or is dead: in its life, gone is greater (R83).

    Returns what that is.
    """
    acknowledged, ownership = rows & work.ledger.deferred_after(work.now_ms), work.ledger.ownership
    if value.stage == Stage.GONE or ownership is None:
        return BitMap64()
    ended = ownership.of_life(acknowledged, value.life)
    remove(work, ended, Removal.ACKNOWLEDGED)
    return ended


def _here(state: JournalState, message_type: str, rows: Mapping[str, BitMap64]) -> BitMap64:
    """Return the own bookmarks of messages of any origin; what is not here has no news."""
    known = state.message_types[message_type]
    own, until, origins = state.journal_id, known.entered_until, known.origins
    published = (origins.published_here(origin, there, own=own, until=until) for origin, there in rows.items())
    return BitMap64.union(BitMap64(), *published, *(origins.here(origin, there) for origin, there in rows.items()))


def _concerned(state: JournalState, news: News) -> BitMap64:
    """Return the messages that news of a queue can be about: of a dead-letter queue, what is dead in that life."""
    source = state.queues.get(state.definitions.source_of(news.queue) or "")
    assert news.value is not None, "a request is no value"
    if source is None or source.ownership is None or news.value.stage != Stage.PRESENT:
        return state.queues[news.queue].entered
    return source.ownership.of_life(source.rows[State.DEAD], news.value.life)


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

    def emit(self, kind: str, **fields: Any) -> None:
        """Record something for this request."""
        detail = fields.pop("detail", {}) | ({"request": self.request} if self.request else {})
        if self.caller is not None:
            detail["by"] = self.caller.signature()
        self.emit_record(kind, detail=detail, **fields)

    def check_peer(self, peer: str) -> None:
        """Refuse what is no peer."""
        peers = self.state.definitions.peers
        if peer not in peers:
            raise ConfigError("UNKNOWN_PEER", peer=peer, nearest=nearest(peer, peers))

    def note(self, change: PeerChange, peer: str) -> None:
        """Record what somebody said of a peer."""
        self.emit(Kind.PEER_CHANGED, reason=change, detail={"peer": peer})


def skip_or_reset(work: PeersWork, command: SkipLost | ResetPeer) -> Done:
    """Go on with a peer without the messages that it let go unpulled, or read the journal that it has now from its beginning."""
    work.check_peer(command.peer)
    work.note(PeerChange.SKIPPED if isinstance(command, SkipLost) else PeerChange.RESET, command.peer)
    return Done()


def forget(work: PeersWork, command: ForgetPeer) -> Forgotten:
    """Claim what a peer owned that is gone for good, but for what may be delivered at most once; nothing waits for it any more."""
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
        # What the peer owns of a queue that is set aside would never be claimed.
        raise work.state.troubles[name]
    claimed, left = 0, dict[str, int]()
    for name, ledger in work.state.queues.items():
        if ledger.ownership is None:
            continue
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
    """Transfer what is owned here to a peer, but for what is leased: that follows once its lease has ended."""
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
            # Its turn would only tell that it is done (R83).
            remove(work.work_on(name), acknowledged, Removal.ACKNOWLEDGED)
        free = BitMap64.union(*(ledger.rows[state] for state in (State.AVAILABLE, State.DELAYED, State.INACTIVE)))
        differs = [each.reason for each in work.state.disagreements.get(command.peer, ()) if each.hinders(name)]
        there = BitMap64() if differs else _there(work, ledger, free, command.peer)
        stay = free - (BitMap64() if there is None else there)
        # What entered before the last record that the peer has pulled would be there by now.
        known = work.state.message_types[ledger.definition.message_type]
        never = BitMap64() if there is None else below(stay, known.entered_before(pulled + 1))
        if free and differs:
            stuck[name] = differs[0]
        elif never:
            stuck[name] = f"{len(never)} of them did not come to it: it does not pull their topic, or what they were published to."
        if ledger.ownership is not None:
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

    Of others it would not hear whose they are.
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
        raise CallerError("UNSUPPORTED_WRITE", what="`sparkq return`", reason=reason, next_step="Nothing is to be done.")
    if command.peer not in known.without:
        say_returning(work.emit, joins=known.joins, without=known.without | {command.peer}, queues=known.queues)
    return Done()


def say_returning(emit: Emit, *, joins: bool, without: Collection[str] = (), queues: Collection[str] = ()) -> None:
    """Record that this instance grants nothing that it owns, or nothing of some queues, before it has heard from its peers."""
    told = {"joins": joins, "without": sorted(without), "queues": sorted(queues)}
    emit(Kind.RETURNING, detail={"on": True} | {name: value for name, value in told.items() if value})


def restored(work: PeersWork, command: Restored) -> Done:
    """Give what entered since the journal was restored, and what will enter, another origin: lost rows may have its bookmarks."""
    found = work.liveness.restored
    if found is None and command.after is None:
        reason = "no peer has pulled anything of it that its log does not have."
        next_step = "If an instance that pulls from here says PEER_RESTORED, repeat it with the --after that stands there."
        raise CallerError("UNSUPPORTED_WRITE", what="`sparkq mark-restored`", reason=reason, next_step=next_step)
    first = int(str(found.facts["since"])) if found is not None else int(command.after or 0) + 1
    since = {name: known.entered_before(first) for name, known in work.state.message_types.items()}
    work.emit(Kind.RESTORED, detail={"origin_uuid": command.origin, "since": since})
    return Done()
