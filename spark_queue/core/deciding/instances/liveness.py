"""Which instances can be reached: those with a beacon that has risen lately, heard of by any way (DESIGN 17.6).

The wait of messages of other instances here before they are asked for: about the time until they end there (R104).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from pyroaring import BitMap64

from spark_queue.core.definitions.keys import BEACON_PERIOD_MS, SILENCE_LEAST_MS
from spark_queue.errors import JournalError

#: Longest time between two looks at a beacon, in milliseconds. A longer one is a gap, in which anything may have happened.
GAP_MS = 2 * BEACON_PERIOD_MS


@dataclass(slots=True)
class _Beacon:
    """The beacon of an instance, as far as it was seen."""

    #: How often it was seen to rise; -1 before the first time.
    number: int
    #: Since which look it has not risen, when the last look began, and how often nobody had looked for too long.
    since_ms: int
    looked_ms: int
    gaps: int = 0


@dataclass(slots=True)
class _Claim:
    """An owner, as it was seen when its messages were claimed."""

    number: int
    gaps: int
    #: The first moment at which the claim was known to be committed; None until it is.
    committed_ms: int | None = None


class ClaimVerdict(Enum):
    """The verdict on claimed messages of an owner (R110)."""

    #: A look that began after the claim's commit has found the owner as silent as before.
    STANDS = auto()
    #: The owner has given a sign of life, or nobody was looking.
    FALLS = auto()
    #: No look has begun since.
    OPEN = auto()


class Liveness:
    """Signs of life of other instances. A hint, never authority: it only permits claims."""

    def __init__(self) -> None:
        #: Every peer that can be read is pulled to the head that it had at this moment; None where one is not pulled to any.
        self.level_ms: int | None = None
        #: Whether the own beacon was not renewed for so long that others may soon claim own messages.
        self.is_mute = False
        #: Whether the logs of all readable peers were searched for records that the own one has lost, or that lasts too long.
        self.is_searched = True
        #: The error that this journal was restored from a backup, until somebody says so.
        self.restored: JournalError | None = None
        #: Number of the last record of this journal that each peer has pulled; None for one that pulls nothing from here. Of a peer
        #: that is not in it nothing is known yet.
        self.pulled_here: Mapping[str, int | None] = {}
        #: Returns the messages of a type that a peer has, by their names: bookmarks by origin; None where that is not known yet.
        self.there: Callable[[str, str], Mapping[str, BitMap64] | None] = lambda _peer, _message_type: None
        self._beacons: dict[str, _Beacon] = {}
        #: Claims that are not granted yet, by queue and owner.
        self._claims: dict[tuple[str, str], _Claim] = {}

    def may_grant(self) -> bool:
        """Return whether others hear of this instance, and its journal lacks nothing that they know, as far as it was searched."""
        # Also a journal that was put back from a backup of a moment ago has lost records that its peers know.
        return self.is_searched and not self.is_mute and self.restored is None

    def hear(self, numbers: Mapping[str, int], *, now_ms: int, looked_ms: int) -> None:
        """Note how often the beacon of each instance was seen to rise; the oldest of the last looks began at `looked_ms`."""
        for instance in {*numbers, *self._beacons}:
            known, number = self._of(instance, looked_ms), numbers.get(instance, -1)
            if looked_ms - known.looked_ms > GAP_MS:
                # A process that slept has seen nobody.
                known.since_ms, known.gaps = looked_ms, known.gaps + 1
            if number > known.number:
                known.number, known.since_ms = number, now_ms
            known.looked_ms = max(known.looked_ms, looked_ms)

    def _of(self, instance: str, looked_ms: int) -> _Beacon:
        return self._beacons.setdefault(instance, _Beacon(-1, looked_ms, looked_ms))

    def listen(self, instances: Iterable[str], *, now_ms: int) -> None:
        """Let the silence begin of those of whom nothing was heard yet."""
        for instance in instances:
            self._of(instance, now_ms)

    def is_lost(self, instance: str, *, after_ms: int) -> bool:
        """Return whether an instance is silent for so long, and all others were pulled to the heads that they had after that."""
        known = self._beacons.get(instance)
        if known is None or self.level_ms is None:
            return False
        return min(known.looked_ms, self.level_ms) >= known.since_ms + after_ms

    def is_silent(self, instance: str) -> bool:
        """Return whether the beacon of an instance has not risen for three of its periods."""
        known = self._beacons.get(instance)
        return known is not None and known.looked_ms - known.since_ms >= SILENCE_LEAST_MS

    def heard_ms(self, instance: str, *, now_ms: int) -> int | None:
        """Return how long ago the beacon of an instance rose last; None where it was never heard."""
        known = self._beacons.get(instance)
        return None if known is None or known.number < 0 else now_ms - known.since_ms

    def silent_ms(self, instance: str, *, now_ms: int) -> int:
        """Return since when the beacon of an instance has not risen; silence begins with the first question."""
        return now_ms - self._of(instance, now_ms).since_ms

    def note_claim(self, queue: str, owner: str) -> None:
        """Note that messages of an owner are claimed, by the signs of life of it until now."""
        known = self._beacons[owner]
        self._claims[queue, owner] = _Claim(known.number, known.gaps)

    def note_commit(self, *, now_ms: int) -> bool:
        """Note that all that was decided so far is durable; returns whether anything of that was claimed."""
        new = [claim for claim in self._claims.values() if claim.committed_ms is None]
        for claim in new:
            claim.committed_ms = now_ms
        return bool(new)

    def claimed(self) -> set[str]:
        """Return the queues of which something is claimed and not granted yet."""
        return {queue for queue, _ in self._claims}

    def forget_claim(self, queue: str, owner: str) -> None:
        """Forget the signs of life of an owner when its messages were claimed: they are granted, or go back."""
        self._claims.pop((queue, owner), None)

    def forget_claims(self) -> None:
        """Forget all of that, so that claimed messages go back: nobody has looked for a while."""
        self._claims.clear()

    def verdict(self, queue: str, owner: str) -> ClaimVerdict:
        """Return the verdict on a claim; a claim that is not remembered, since a coordinator has ended meanwhile, falls."""
        claim, known = self._claims.get((queue, owner)), self._beacons.get(owner)
        if claim is None or known is None or (known.number, known.gaps) != (claim.number, claim.gaps):
            return ClaimVerdict.FALLS
        is_looked_after = claim.committed_ms is not None and known.looked_ms > claim.committed_ms
        return ClaimVerdict.STANDS if is_looked_after else ClaimVerdict.OPEN


#: How much the newest end counts in the mean.
_WEIGHT = 1 / 8


class TransferDelay:
    """The usual time until one queue's messages end, by owner, and the askers for messages that have ended.

    A hint: it is lost with the reign and not in the log, since no record depends on when something was asked for.
    """

    def __init__(self) -> None:
        self._means_ms: dict[str, float] = {}
        #: The messages that had ended when an instance asked for them, and the time of that.
        self._ended: dict[str, tuple[BitMap64, int]] = {}

    def asked_again(self, requester: str, ended: BitMap64, *, after_ms: int, now_ms: int) -> BitMap64:
        """Return those of some ended messages for which an instance had asked long enough ago to have heard of their end."""
        before, at_ms = self._ended.get(requester, (BitMap64(), now_ms - after_ms))
        if now_ms < at_ms + after_ms:
            return BitMap64()
        self._ended[requester] = (ended, now_ms)
        return before & ended

    def note_end(self, owner: str, waited_ms: int) -> None:
        """Note how long some messages of an owner had been here when news of their end came."""
        mean_ms = self._means_ms.get(owner, waited_ms)
        self._means_ms[owner] = mean_ms + (waited_ms - mean_ms) * _WEIGHT

    def ms(self, owner: str, *, at_first_ms: int, at_most_ms: int) -> int:
        """Return how long messages of an owner are waited for; `at_first_ms` as long as no news of an end have come."""
        return min(round(self._means_ms.get(owner, at_first_ms)), at_most_ms)
