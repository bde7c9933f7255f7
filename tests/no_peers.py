"""For a loop of a journal without peers."""

from __future__ import annotations

from spark_queue.core.definitions.definition import Definitions
from spark_queue.replication.exchange import Heard, PullReport


class NoPeers:
    """`coordinator.loop.PeerPullers` where nothing is pulled."""

    def keep(self, definitions: Definitions, known: frozenset[str]) -> None:
        """Pull from nobody."""

    def are_level(self) -> bool:
        """Return that there is nothing to hear."""
        return True

    def are_compared(self) -> bool:
        """Return that there is nothing to compare."""
        return True

    def pulled_here(self) -> dict[str, int | None]:
        """Return that nobody pulls from here."""
        return {}

    def restored(self) -> None:
        """Return that nobody knows more of it."""

    def begin_anew(self) -> None:
        """Pull from nobody."""

    def look_soon(self) -> None:
        """Look at nobody."""

    def heard(self) -> Heard:
        """Return that nobody was heard of, and all are pulled."""
        return Heard()

    def reports(self) -> dict[str, PullReport]:
        """Return that nobody is pulled."""
        return {}
