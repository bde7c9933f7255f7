"""`Peer`: the users' handle of an instance that their journal pulls from. It is a value that opens nothing until asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from spark_queue.client import coordinator_client
from spark_queue.client.arguments import checked
from spark_queue.core import commands, replies
from spark_queue.errors import JournalError
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint

#: The wait of a drain for leases to end, and for the peer, between two looks, in seconds.
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer of the journal in a store, by the name of its instance; `endpoint` as `Journal` has it."""

    store: Store
    endpoint: Endpoint
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

    def return_without(self) -> None:
        """Let this instance, which was away, deliver again without hearing from the peer: what that one claimed comes twice.

        Raises
        ------
        CallerError
            UNSUPPORTED_WRITE where it waits for no peer.
        ConfigError
            UNKNOWN_PEER.
        """
        self._ask(commands.ReturnWithout(peer=self.name))

    def forget(self) -> replies.Forgotten:
        """Claim what the peer owned, since it is gone for good; nothing waits for it any more.

        Raises
        ------
        ConfigError
            UNKNOWN_PEER.
        JournalError
            PEER_LIVES.
        """
        return cast(replies.Forgotten, self._ask(commands.ForgetPeer(peer=self.name)))

    @checked
    def drain(self, *, on_progress: Callable[[int, Mapping[str, int]], None] | None = None) -> int:
        """Hand all that is owned here to the peer; returns how many messages that were, once it has heard of all of them.

        A message is handed over once the peer's log shows that it is there.

        Parameters
        ----------
        on_progress
            Called now and then with how many were handed over, and how many are still owned here, by queue.

        Raises
        ------
        ConfigError
            UNKNOWN_PEER.
        JournalError
            DRAIN_STUCK: some of it will never come to the peer as things are.
        """
        transferred, record = 0, -1
        while True:
            done = cast(replies.Drained, self._ask(commands.DrainTo(peer=self.name, record=record)))
            transferred, record = transferred + done.transferred, done.record
            if on_progress is not None:
                on_progress(transferred, done.left)
            if done.is_pulled:
                return transferred
            if done.stuck and not done.transferred:
                queue, reason = next(iter(done.stuck.items()))
                facts = {"transferred": transferred, "count": done.left[queue], "queue": queue, "reason": reason}
                raise JournalError("DRAIN_STUCK", peer=self.name, **facts)
            time.sleep(_PAUSE_S)

    def _ask(self, command: commands.InstanceCommand) -> replies.CoreReply:
        found = coordinator_client.call_once(self.store, open_reader(self.store).journal_id, command, endpoint=self.endpoint)
        return cast(replies.CoreReply, found)
