"""Whether a peer's definitions fit, as its log is read: what is told of it, and which news wait until they do (DESIGN 17.7)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_queue.core.definitions.agreement import WITHHOLDING, Disagreement, Rule
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.replication import validation


class Fit:
    """How the definitions of a peer break rules with the own.

    Parameters
    ----------
    own : Definitions
        The own.
    peer : PeerDefinition
        What is pulled.
    definitions : dict
        Those of all peers by name, shared by their pullers: what reaches whom follows from all of them.
    """

    def __init__(self, own: Definitions, peer: PeerDefinition, definitions: dict[str, Definitions]) -> None:
        self._own = own
        self._peer = peer
        self._definitions = definitions
        self._seen: tuple[tuple[str, Definitions], ...] = ()
        #: What the own log says of it, and what is so now.
        self._told: list[Disagreement] = []
        self._now: list[Disagreement] = []
        #: Queues whose news were withheld before this began.
        self._waiting: frozenset[str] = frozenset()

    def begin(self, told: Sequence[Disagreement], *, reads_all: bool) -> None:
        """Go on with what the own log says.

        Parameters
        ----------
        told : Sequence of Disagreement
            How it broke rules.
        reads_all : bool
            Whether its log is read from the first record, so that nothing of it is missed.
        """
        self._told = self._now = list(told)
        self._waiting = frozenset() if reads_all else _withheld(told)

    def look(self, theirs: Definitions) -> None:
        """Learn what the peer's newest definitions are, and what breaks rules now."""
        self._definitions[self._peer.name] = theirs
        seen = tuple(self._definitions.items())
        if seen == self._seen:
            return
        self._seen = seen
        found = validation.of_peer(self._own, self._peer, dict(seen))
        if len(seen) < len(self._own.peers):
            # Who is not read yet may be whom something did not reach.
            found += [each for each in self._told if each.rule == Rule.PATHS and each not in found]
        self._now = sorted(found)

    def withholds(self, queue: str) -> bool:
        """Return whether news about a queue wait: it is another one there."""
        return queue in _withheld(self._now)

    @property
    def fits_again(self) -> bool:
        """Whether a queue fits whose news were withheld, so that the log must be read again."""
        return bool(self._waiting - _withheld(self._now))

    @property
    def changed(self) -> Sequence[Disagreement] | None:
        """What the own log is to say from now on; None where it says so already."""
        return self._now if self._now != self._told else None

    def note_told(self) -> None:
        """Note that the own log says what is so now, and that news were withheld by it."""
        self._told = self._now
        self._waiting |= _withheld(self._now)


def _withheld(disagreements: Sequence[Disagreement]) -> frozenset[str]:
    return frozenset(each.queue for each in disagreements if each.rule in WITHHOLDING)
