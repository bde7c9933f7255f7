"""How long messages of other instances wait here before they are asked for: about as long as they take to end there (R104)."""

from __future__ import annotations

#: How much the newest end counts in the mean.
_WEIGHT = 1 / 8


class Patience:
    """What a reign has seen of the ends of one queue's messages, by owner.

    A hint, so it is lost with the reign and no part of the log: what is asked for is recorded, and nothing follows from when.
    """

    def __init__(self) -> None:
        self._means_ms: dict[str, float] = {}

    def note_end(self, owner: str, waited_ms: int) -> None:
        """Note how long some messages of an owner had been here when news of their end came."""
        mean_ms = self._means_ms.get(owner, waited_ms)
        self._means_ms[owner] = mean_ms + (waited_ms - mean_ms) * _WEIGHT

    def ms(self, owner: str, *, at_first_ms: int, at_most_ms: int) -> int:
        """Return how long messages of an owner are waited for.

        Parameters
        ----------
        at_first_ms : int
            As long as no news of an end have come.
        """
        return min(round(self._means_ms.get(owner, at_first_ms)), at_most_ms)
