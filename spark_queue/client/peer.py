"""`Peer`: what users say of an instance that their journal pulls from. It is a value that opens nothing until asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from spark_queue.client.coordinator_client import call_once
from spark_queue.core import commands, replies

if TYPE_CHECKING:
    from spark_queue.client.journal import Journal


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer of a journal, by the name of its instance."""

    journal: Journal
    name: str

    def skip_lost(self) -> None:
        """Go on without the messages that the peer let go before they were pulled (PEER_GAP).

        Raises
        ------
        ConfigError
            UNKNOWN_PEER.
        """
        self._ask(commands.SkipLost(peer=self.name))

    def _ask(self, command: commands.InstanceCommand) -> replies.CoreReply:
        found = call_once(self.journal.store, self.journal.journal_id(), command, address=self.journal.coordinator)
        return cast(replies.CoreReply, found)
