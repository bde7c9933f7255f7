"""What people say of the instances of a journal, whatever queue (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_queue.core.commands import SkipLost
from spark_queue.core.deciding.instances.reach import Reach
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Emit, Kind, PeerChange
from spark_queue.core.replies import Done
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import ConfigError, nearest


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
