"""What people say of the instances of a journal, whatever queue (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.caller import Caller
from spark_queue.core.commands import DrainTo, ForgetPeer, ResetPeer, Restored, SkipLost
from spark_queue.core.deciding.instances.reach import Reach
from spark_queue.core.deciding.instances.transfers import transfer
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import CLAIMED, Emit, Kind, PeerChange, Removal
from spark_queue.core.replies import Done, Drained, Forgotten
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import CallerError, ConfigError, JournalError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersWork:
    """What the handler of one such command needs."""

    state: JournalState
    reach: Reach
    now_ms: int
    request: str
    emit_record: Emit
    #: Who asks; None where there are no principals.
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
        """Refuse what is no peer.

        Raises
        ------
        ConfigError
            UNKNOWN_PEER, naming the nearest.
        """
        peers = self.state.definitions.peers
        if peer not in peers:
            raise ConfigError("UNKNOWN_PEER", peer=peer, nearest=nearest(peer, peers))


def skip_lost(work: PeersWork, command: SkipLost) -> Done:
    """Go on with a peer without the messages that it let go before they were pulled."""
    work.check_peer(command.peer)
    work.emit(Kind.PEER_CHANGED, reason=PeerChange.SKIPPED, detail={"peer": command.peer})
    return Done()


def reset(work: PeersWork, command: ResetPeer) -> Done:
    """Take the journal that a peer has now for it, and read it from its beginning."""
    work.check_peer(command.peer)
    work.emit(Kind.PEER_CHANGED, reason=PeerChange.RESET, detail={"peer": command.peer})
    return Done()


def forget(work: PeersWork, command: ForgetPeer) -> Forgotten:
    """Claim what a peer owned that is gone for good, but for what may be delivered at most once; nothing waits for it any more.

    Raises
    ------
    ConfigError
        UNKNOWN_PEER.
    JournalError
        PEER_LIVES while it is heard of.
    """
    peer = command.peer
    work.check_peer(peer)
    heard_ms, after_ms = work.reach.heard_ms(peer, now_ms=work.now_ms), work.state.definitions.replication.unreachable_after_ms
    if heard_ms is not None and heard_ms < after_ms:
        raise JournalError("PEER_LIVES", peer=peer, heard_s=heard_ms // 1_000, after_s=after_ms // 1_000)
    claimed, left = 0, dict[str, int]()
    for name, ledger in work.state.queues.items():
        if ledger.ownership is None:
            continue
        rows = ledger.ownership.of_others(ledger.rows[State.REMOTE], {peer}).get(peer, BitMap64())
        stay = rows if ledger.definition.at_most_once else ledger.ownership.of_last_term(rows)
        if stay:
            left[name] = len(stay)
        rows = rows - stay
        if rows:
            transfer(work.work_on(name), rows, ledger.ownership.instance, reason=CLAIMED)
            claimed += len(rows)
    work.emit(Kind.PEER_CHANGED, reason=PeerChange.FORGOTTEN, detail={"peer": peer})
    return Forgotten(claimed=claimed, left=left)


def drain(work: PeersWork, command: DrainTo) -> Drained:
    """Transfer what is owned here to a peer, but for what is leased: that follows once its lease has ended.

    Raises
    ------
    ConfigError
        UNKNOWN_PEER.
    JournalError
        JOURNAL_RESTORED: what it owned may be somebody else's by now.
    """
    work.check_peer(command.peer)
    if work.reach.restored is not None:
        raise work.reach.restored
    transferred, left = 0, dict[str, int]()
    for name in work.state.definitions.peers[command.peer].queues:
        ledger = work.state.ledger(name)
        leased = ledger.rows[State.LEASED]
        acknowledged = ledger.rows[State.INACTIVE] & ledger.deferred_after(work.now_ms)
        if acknowledged:
            # Its turn would only tell that it is done (R83).
            remove(work.work_on(name), acknowledged, Removal.ACKNOWLEDGED)
        free = BitMap64.union(*(ledger.rows[state] for state in (State.AVAILABLE, State.DELAYED, State.INACTIVE)))
        stay = BitMap64() if ledger.ownership is None else ledger.ownership.of_last_term(free)
        free -= stay
        if leased or stay:
            left[name] = len(leased) + len(stay)
        if leased and ledger.definition.order_key is not None:
            # Of one key the oldest is delivered first, wherever it is.
            left[name] += len(free)
        elif free:
            transfer(work.work_on(name), free, command.peer)
            transferred += len(free)
    record = -1 if transferred or left else command.record
    if record < 0 and not left:
        # By this the last transfer is known to have been pulled.
        record = work.state.next_record
        work.emit(Kind.PEER_CHANGED, reason=PeerChange.DRAINED, detail={"peer": command.peer})
    pulled = work.reach.pulled_here.get(command.peer)
    is_pulled = record >= 0 and pulled is not None and pulled >= record
    return Drained(transferred=transferred, left=left, record=record, is_pulled=is_pulled)


def restored(work: PeersWork, command: Restored) -> Done:
    """Give what entered since the journal was restored, and what will enter, another origin: lost rows may have its bookmarks.

    Raises
    ------
    CallerError
        UNSUPPORTED_WRITE where nothing tells that it was restored.
    """
    found = work.reach.restored
    if found is None and command.after is None:
        reason = "no peer has pulled anything of it that its log does not have."
        next_step = "If an instance that pulls from here says PEER_RESTORED, repeat it with the --after that stands there."
        raise CallerError("UNSUPPORTED_WRITE", what="`sparkq restored`", reason=reason, next_step=next_step)
    first = int(str(found.facts["since"])) if found is not None else int(command.after or 0) + 1
    since = {name: known.entered_before(first) for name, known in work.state.message_types.items()}
    work.emit(Kind.RESTORED, detail={"origin_uuid": command.origin, "since": since})
    return Done()
