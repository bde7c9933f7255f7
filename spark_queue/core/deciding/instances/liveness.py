"""Which instances can be reached: those whose beacon has risen lately, by whatever way it was heard of (DESIGN 17.6).

How long messages of other instances wait here before they are asked for: about as long as they take to end there (R104).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_queue.errors import JournalError


class Liveness:
    """Signs of life of other instances. A hint, never authority: it only says what may be claimed."""

    def __init__(self) -> None:
        #: Whether every peer that can be read is pulled to its end.
        self.is_level = False
        #: Whether what others said while nobody reigned here was heard, or waited for long enough: before, nothing is given away.
        self.has_heard = True
        #: The error that this journal was restored from a backup, until somebody says so.
        self.restored: JournalError | None = None
        #: Number of the last record of this journal that each peer has pulled; None for one that pulls nothing from here. Of a peer
        #: that is not in it nothing is known yet.
        self.pulled_here: Mapping[str, int | None] = {}
        self._heard: dict[str, tuple[int, int]] = {}

    def hear(self, numbers: Mapping[str, int], *, now_ms: int) -> None:
        """Note the newest beacon of each instance, by name."""
        for instance, number in numbers.items():
            if number > self._heard.get(instance, (-1, 0))[0]:
                self._heard[instance] = (number, now_ms)

    def is_lost(self, instance: str, *, now_ms: int, after_ms: int) -> bool:
        """Return whether the beacon of an instance has not risen for so long."""
        return self.silent_ms(instance, now_ms=now_ms) >= after_ms

    def heard_ms(self, instance: str, *, now_ms: int) -> int | None:
        """Return how long ago the beacon of an instance rose last; None where it was never heard."""
        return self.silent_ms(instance, now_ms=now_ms) if instance in self.numbers() else None

    def listen(self, instances: Iterable[str], *, now_ms: int) -> None:
        """Let the silence begin of those of whom nothing was heard yet."""
        for instance in instances:
            self.silent_ms(instance, now_ms=now_ms)

    def silent_ms(self, instance: str, *, now_ms: int) -> int:
        """Return since when the beacon of an instance has not risen; silence begins with the first question."""
        _, heard_at_ms = self._heard.setdefault(instance, (-1, now_ms))
        return now_ms - heard_at_ms

    def numbers(self) -> dict[str, int]:
        """Return the newest beacons, for the own."""
        return {instance: number for instance, (number, _) in self._heard.items() if number >= 0}


#: How much the newest end counts in the mean.
_WEIGHT = 1 / 8


class TransferDelay:
    """How long one queue's messages usually take to end, by owner.

    A hint: it is lost with the reign and not in the log, since no record depends on when something was asked for.
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
