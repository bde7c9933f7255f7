"""For a loop of a journal without peers."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.definitions.definition import Definitions
from spark_queue.replication.exchange import Heard, HeardPeer, PullReport


class NoPeers:
    """`coordinator.loop.PeerPullers` where nothing is pulled."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def keep(self, definitions: Definitions, known: frozenset[str], *, shows_life: bool) -> None:
        """Pull from nobody."""
        self._names = [*definitions.peers]

    def are_compared(self) -> bool:
        """Return that there is nothing to compare."""
        return True

    def pulled_here(self) -> dict[str, int | None]:
        """Return that nobody pulls from here."""
        return {}

    def there(self, _peer: str, _message_type: str) -> dict[str, BitMap64]:
        """Return that nobody has anything."""
        return {}

    def restored(self) -> None:
        """Return that nobody knows more of it."""

    def begin_anew(self) -> None:
        """Pull from nobody."""

    def look_soon(self) -> None:
        """Look at nobody."""

    def heard(self) -> Heard:
        """Return that nobody has risen, and all know this instance, and are pulled."""
        return Heard(peers={name: HeardPeer(seen_own=2**62) for name in self._names})

    def reports(self) -> dict[str, PullReport]:
        """Return that nobody is pulled."""
        return {}
