"""What people say of the instances of a journal, whatever queue (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_queue.core.commands import ResetPeer, Restored, SkipLost
from spark_queue.core.deciding.instances.reach import Reach
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Emit, Kind, PeerChange
from spark_queue.core.replies import Done
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CallerError, ConfigError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersWork:
    """What the handler of one such command needs."""

    state: JournalState
    reach: Reach
    now_ms: int
    request: str
    emit_record: Emit
    #: Makes the unit of work of a queue.
    work_on: Callable[[str], UnitOfWork]

    def emit(self, kind: str, **fields: Any) -> None:
        """Record something for this request."""
        detail = fields.pop("detail", {}) | ({"request": self.request} if self.request else {})
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
