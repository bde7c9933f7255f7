"""`Peer`: what users say of an instance that their journal pulls from. It is a value that opens nothing until asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from spark_queue.client.coordinator_client import call_once
from spark_queue.core import commands, replies
from spark_queue.journal.layout import Store
from spark_queue.journal.reader import open_reader


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer of the journal in a store, by the name of its instance; `coordinator` as `Journal` has it."""

    store: Store
    coordinator: str | None
    name: str

    def skip_lost(self) -> None:
        """Go on without the messages that the peer let go before they were pulled (PEER_GAP).

        Raises
        ------
        ConfigError
            UNKNOWN_PEER.
        """
        self._ask(commands.SkipLost(peer=self.name))

    def reset(self) -> None:
        """Read the journal that the peer has now from its beginning (PEER_REPLACED).

        Raises
        ------
        ConfigError
            UNKNOWN_PEER.
        """
        self._ask(commands.ResetPeer(peer=self.name))

    def _ask(self, command: commands.InstanceCommand) -> replies.CoreReply:
        found = call_once(self.store, open_reader(self.store).journal_id, command, address=self.coordinator)
        return cast(replies.CoreReply, found)
