"""A stand-in: it looks after the coordinator that serves, and succeeds it when that one is silent (DESIGN 15.16)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from spark_queue.coordinator.election import Candidate, ElectionPorts, Reign, claim_next, load_log
from spark_queue.core.records import EpochClaimed, Record
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.ports import ControlLog, JournalPort
from spark_queue.protocol.connection import Presence
from spark_queue.protocol.discovery import Advertisement, read_advertisement
from spark_queue.protocol.host import is_loopback

_LOG = logging.getLogger(__name__)

#: How often a stand-in looks, in seconds.
LOOK_S = 1.0

#: How long a look waits for an answer, in seconds.
ASK_S = 1.0

#: How long a coordinator may neither answer nor renew its advertisement, in milliseconds: two renewals, and some patience.
SILENCE_MS = 12_000

#: How long one that answers may leave its advertisement as it was, in milliseconds: it does not reach the store any more.
STUCK_MS = 30_000

#: How often the advertisement of one that answers is read, in milliseconds.
READ_MS = 5_000

#: Most that may pass between two looks and count as silence, in milliseconds: a process that slept has heard nobody.
LOOK_MOST_MS = 3_000

#: Troubles that may be over at the next look: somebody else was faster, or the store is away.
_PASSING = frozenset({"COORDINATOR_DEPOSED", "STORE_FAILED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The coordinator that claimed a reign, and the address that it named."""

    epoch: int
    host: str
    address: str

    @classmethod
    def of_claim(cls, claim: Record) -> Holder:
        """Return the holder that a claim names."""
        body = claim.body_as(EpochClaimed)
        return cls(epoch=claim.epoch, host=body.host, address=body.address)


def succeed(control: ControlLog, candidate: Candidate, around: ElectionPorts, *, silent_epoch: int) -> Reign | Holder:
    """Claim the next epoch if the newest one is known to be silent, or there is none; return its holder otherwise.

    `control` was not used before: after a lost claim it is in doubt. `silent_epoch` is 0 where no holder was silent for long
    enough.
    """
    tail = load_log(control, candidate)
    last = tail.claim
    if last is not None and last.epoch != silent_epoch:
        return Holder.of_claim(last)
    return claim_next(control, tail, candidate, around.clock)


class Watch:
    """Looks after the holder of a reign until it has been silent for long enough, or somebody else has followed it."""

    def __init__(self, holder: Holder, candidate: Candidate, around: ElectionPorts) -> None:
        self.holder = holder
        self._candidate = candidate
        self._around = around
        self._looked_at_ms = around.clock.monotonic_ms()
        self._read_at_ms = self._looked_at_ms - READ_MS
        #: For how long the address has not answered, and the advertisement has stood as it stands.
        self._unheard_ms = self._unrenewed_ms = 0
        self._newest: Advertisement | None = None
        #: Whether the holder was seen to renew its advertisement, and to have removed it at its end.
        self._renews = self._has_left = False

    def is_silent(self) -> bool:
        """Look once; return whether the reign may be taken over now."""
        now_ms = self._around.clock.monotonic_ms()
        passed_ms = min(now_ms - self._looked_at_ms, LOOK_MOST_MS)
        self._looked_at_ms = now_ms
        presence = self._ask()
        self._unheard_ms = 0 if presence is Presence.SERVES else self._unheard_ms + passed_ms
        self._unrenewed_ms += passed_ms
        if presence is not Presence.SERVES or now_ms - self._read_at_ms >= READ_MS:
            self._read_at_ms = now_ms
            self._read()
        return self._is_over(presence)

    def _ask(self) -> Presence:
        holder, candidate = self.holder, self._candidate
        if holder.address == candidate.address or (holder.host != candidate.host and is_loopback(holder.address)):
            # This process itself would answer, or a stranger on this host.
            return Presence.GONE
        return self._around.ping(holder.address, ASK_S)

    def _read(self) -> None:
        try:
            newest = read_advertisement(self._around.advertisements, self._candidate.journal_id)
        except JournalError as trouble:
            # Without the store nobody knows which others cannot reach it.
            _LOG.warning("The advertisement could not be read: %s", trouble)
            self._unheard_ms = self._unrenewed_ms = 0
            return
        before, self._newest = self._newest, newest
        if newest == before:
            return
        self._unrenewed_ms = 0
        was_own = before is not None and before.epoch == self.holder.epoch
        self._has_left = was_own and newest is None
        self._renews = was_own and newest is not None
        if newest is not None and newest.epoch > self.holder.epoch:
            self.holder = Holder(epoch=newest.epoch, host=newest.host, address=newest.address)
            self._unheard_ms = 0

    def _is_over(self, presence: Presence) -> bool:
        if presence is Presence.SERVES:
            return self._renews and self._unrenewed_ms >= STUCK_MS
        # Nobody listens there on this very host; or it ended in good order. One that sends everybody away may serve all the same.
        if self._has_left or (presence is Presence.GONE and self.holder.host == self._candidate.host):
            return True
        return min(self._unheard_ms, self._unrenewed_ms) >= SILENCE_MS


class Waiting:
    """Pauses between two looks, which somebody may end; announces once the coordinator that serves."""

    def __init__(self, waits: Callable[[str], None], told_to_end: threading.Event) -> None:
        self._waits = waits
        self._told_to_end = told_to_end
        self._told = False

    def pause(self, address: str) -> None:
        """Wait until the next look."""
        if not self._told:
            self._told = True
            self._waits(address)
        if self._told_to_end.wait(LOOK_S):
            raise KeyboardInterrupt


def wait_to_reign(
    open_journal: Callable[[], JournalPort], candidate: Candidate, around: ElectionPorts, waiting: Waiting
) -> tuple[Reign, JournalPort]:
    """Watch the coordinator that reigns until it is silent; the log is read only to find and to follow a reign."""
    silent_epoch, address = 0, candidate.address
    while True:
        journal = open_journal()
        try:
            found = succeed(journal.control, candidate, around, silent_epoch=silent_epoch)
        except SparkQueueError as trouble:
            if trouble.code not in _PASSING:
                raise
            _LOG.warning("Still standing by, since it cannot take over now: %s", trouble)
            waiting.pause(address)
            continue
        if isinstance(found, Reign):
            return found, journal
        watch = Watch(found, candidate, around)
        while not watch.is_silent():
            waiting.pause(watch.holder.address)
        silent_epoch, address = watch.holder.epoch, watch.holder.address
