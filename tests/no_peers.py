"""For a loop of a journal without peers."""

from __future__ import annotations

from spark_queue.core.definitions.definition import Definitions
from spark_queue.replication.pullers import PullReport


class NoPeers:
    """`coordinator.loop.PeerPullers` where nothing is pulled."""

    def keep(self, definitions: Definitions) -> None:
        """Pull from nobody."""

    def are_level(self) -> bool:
        """Return that there is nothing to hear."""
        return True

    def numbers(self) -> dict[str, int]:
        """Return that nobody was heard of."""
        return {}

    def reports(self) -> dict[str, PullReport]:
        """Return that nobody is pulled."""
        return {}
