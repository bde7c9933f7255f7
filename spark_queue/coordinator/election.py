"""Election: find the coordinator that reigns, or become the next one (DESIGN 6, 15.16).

The control log alone decides: a claim is one compare-and-swap, and whoever wins it reigns until the next one. Everything
before the claim is courtesy, so that a living coordinator is not deposed: ask at the address of the last claim, be patient
with silence, and leave alone what another host renews.

The time of one reign: starts where the wall clock or the log stands, then moves only with the monotonic clock (DESIGN 6).
A stand-in: it looks after the coordinator that serves, and succeeds it when that one is silent (DESIGN 15.16).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.status import LogTail
from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.ports import Clock, ControlLog, JournalPort
from spark_queue.protocol.connection import LOCAL, RENEWAL_S, Advertisement, AdvertisementStore, Verdict, ping, read_advertisement
from spark_queue.protocol.host import is_loopback, location_of

_LOG = logging.getLogger(__name__)

#: How far the last record may be ahead of the wall clock before it is worth a log line, in milliseconds.
AHEAD_LOGGED_MS = 60_000

#: How far it may be ahead before a reign is refused, in milliseconds.
AHEAD_REFUSED_MS = 86_400_000


class ReignClock:
    """Milliseconds since 1970 UTC that never go back, whatever happens to the wall clock.

    Parameters
    ----------
    clock : Clock
        The host's clock; the reign's time takes its wall time once, here.
    last_record_ms : int
        Time of the newest record of the control log, in milliseconds.
    """

    def __init__(self, clock: Clock, *, last_record_ms: int) -> None:
        self._clock = clock
        self._start_ms = max(clock.wall_ms(), last_record_ms)
        self._start_monotonic_ms = clock.monotonic_ms()

    def now_ms(self) -> int:
        """Return the reign's time."""
        return self._start_ms + self._clock.monotonic_ms() - self._start_monotonic_ms

    def host_ms(self) -> int:
        """Return the reign's time, or the host's where that is earlier: by it the ages of files are judged.

        A store stamps files with its own time, so a reign that is ahead would take what was written just now for old.
        """
        return min(self.now_ms(), self._clock.wall_ms())


def check_skew(clock: Clock, *, last_record_ms: int, path: str, accepted: bool) -> None:
    """Refuse to reign when the log is more than a day ahead of this host's clock; a log in the past is never an error."""
    ahead_ms = last_record_ms - clock.wall_ms()
    if ahead_ms > AHEAD_REFUSED_MS and not accepted:
        raise CoordinatorError("CLOCK_SKEW", path=path, ahead_s=ahead_ms // 1000)
    if ahead_ms > AHEAD_LOGGED_MS:
        _LOG.warning("The last record is %d s ahead of this host's clock; the reign's time starts there.", ahead_ms // 1000)


#: How long a coordinator may be silent before its reign is taken over, in seconds.
SILENCE_S = 10.0

#: How long an advertisement is watched for a sign of life, in seconds: three renewals.
WATCH_S = 3 * RENEWAL_S

#: Asks an address whether the journal's coordinator answers there, for at most some seconds.
Pinger = Callable[[str, float], Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A process that would reign, already listening at `address`."""

    journal_id: str
    path: str
    host: str
    address: str
    pid: int
    #: Reign although the log is more than a day ahead of the clock.
    accept_clock: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """A won election."""

    epoch: int
    #: The control log after that state, ending with the own claim. Recovery takes the records out as it folds them: nobody needs
    #: them twice, and a reign lasts longer than the memory that they would hold should.
    records: deque[Record]
    clock: ReignClock
    #: From a snapshot; None when there was none.
    state: JournalState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionPorts:
    """Everything that an election consults beside the log."""

    advertisements: AdvertisementStore
    ping: Pinger
    clock: Clock
    #: Waits some seconds.
    pause: Callable[[float], None]


def election_ports(store: Store, journal_id: str, clock: Clock) -> ElectionPorts:
    """Return what an election over a journal looks at."""
    return ElectionPorts(
        advertisements=store,
        ping=lambda address, timeout_s: ping(address, journal_id, location_of(store), timeout_s, partial(LOCAL.token, store)),
        clock=clock,
        pause=time.sleep,
    )


def elect(control: ControlLog, candidate: Candidate, around: ElectionPorts) -> Reign:
    """Claim the next epoch, unless the coordinator of the last claim lives."""
    past = load_log(control, candidate)
    if past.claim is not None:
        _leave_living_alone(past.claim, candidate, around)
    return claim_next(control, past, candidate, around.clock)


def load_log(control: ControlLog, candidate: Candidate) -> LogTail:
    """Load the log of the journal that the candidate means."""
    past = control.load()
    if past.journal_id != candidate.journal_id:
        raise JournalError("JOURNAL_MISMATCH", expected=candidate.journal_id, path=candidate.path, found=past.journal_id)
    # A claim of who cannot reign would depose who can, and grow the log with each start.
    past.refuse_newer(candidate.path)
    return past


def _leave_living_alone(last: Record, candidate: Candidate, around: ElectionPorts) -> None:
    address = str(last.detail["address"])
    same_host = last.detail["host"] == candidate.host
    # Another host's loopback address leads to nobody, or to a stranger on this host; at the own one only the candidate listens.
    asked = address != candidate.address and (same_host or not is_loopback(address))
    begun_ms, known = around.clock.monotonic_ms(), read_advertisement(around.advertisements, candidate.journal_id)
    verdict = around.ping(address, SILENCE_S) if asked else Verdict.GONE
    if verdict is Verdict.SERVES:
        raise CoordinatorError("COORDINATOR_SERVES", path=candidate.path, address=address)
    # Nobody listens there for certain. Whoever does may be the one that serves, though it is full of calls, or not trusted here.
    if same_host and verdict is Verdict.GONE:
        return
    # Three renewals by the own monotonic clock; another host's clock is not compared with.
    while around.clock.monotonic_ms() - begun_ms < WATCH_S * 1000:
        around.pause(1.0)
        newest = read_advertisement(around.advertisements, candidate.journal_id)
        if newest is not None and newest != known:
            raise _renewed(newest, candidate, around.clock, verdict, same_host=same_host)


def _renewed(newest: Advertisement, candidate: Candidate, clock: Clock, verdict: Verdict, *, same_host: bool) -> CoordinatorError:
    """Return why one that does not answer here is left alone, since it renews its advertisement."""
    if verdict is Verdict.UNTRUSTED:
        return CoordinatorError("COORDINATOR_UNTRUSTED", path=candidate.path, address=newest.address)
    if same_host:
        return CoordinatorError("COORDINATOR_SERVES", path=candidate.path, address=newest.address)
    age_s = max(0, clock.wall_ms() - newest.renewed_at_ms) // 1000
    return CoordinatorError(
        "COORDINATOR_ELSEWHERE", path=candidate.path, host=newest.told_host, pid=newest.pid, address=newest.address, age_s=age_s
    )


def claim_next(control: ControlLog, past: LogTail, candidate: Candidate, clock: Clock) -> Reign:
    """Claim the epoch after the newest of a log, at the head of that log."""
    last = past.claim
    if last is not None:
        address = str(last.detail["address"])
        _LOG.info("The coordinator of epoch %d at %s does not answer; claiming epoch %d.", last.epoch, address, last.epoch + 1)
    check_skew(clock, last_record_ms=past.last_at_ms, path=candidate.path, accepted=candidate.accept_clock)
    reign_clock = ReignClock(clock, last_record_ms=past.last_at_ms)
    claim = Record(
        kind=Kind.EPOCH_CLAIMED,
        record=past.next_record,
        epoch=1 if last is None else last.epoch + 1,
        at_ms=reign_clock.now_ms(),
        detail={"host": candidate.host, "address": candidate.address, "pid": candidate.pid},
    )
    control.append([claim], epoch=claim.epoch)
    return Reign(epoch=claim.epoch, state=past.state, records=deque([*past, claim]), clock=reign_clock)


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

#: Most that may pass between two looks and count as silence, in milliseconds: whoever slept has heard nobody.
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
        return cls(epoch=claim.epoch, host=str(claim.detail["host"]), address=str(claim.detail["address"]))


def succeed(control: ControlLog, candidate: Candidate, around: ElectionPorts, *, silent_epoch: int) -> Reign | Holder:
    """Claim the next epoch if the newest one is known to be silent, or there is none; return its holder otherwise.

    Parameters
    ----------
    control : ControlLog
        One that was not used before: after a lost claim it is in doubt.
    silent_epoch : int
        The epoch whose holder was silent for long enough; 0 for none.
    """
    past = load_log(control, candidate)
    last = past.claim
    if last is not None and last.epoch != silent_epoch:
        return Holder.of_claim(last)
    return claim_next(control, past, candidate, around.clock)


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
        #: Whether the holder was seen to renew its advertisement, and to have taken it away at its end.
        self._renews = self._has_left = False

    def is_silent(self) -> bool:
        """Look once; return whether the reign may be taken over now."""
        now_ms = self._around.clock.monotonic_ms()
        passed_ms = min(now_ms - self._looked_at_ms, LOOK_MOST_MS)
        self._looked_at_ms = now_ms
        verdict = self._ask()
        self._unheard_ms = 0 if verdict is Verdict.SERVES else self._unheard_ms + passed_ms
        self._unrenewed_ms += passed_ms
        if verdict is not Verdict.SERVES or now_ms - self._read_at_ms >= READ_MS:
            self._read_at_ms = now_ms
            self._read()
        return self._is_over(verdict)

    def _ask(self) -> Verdict:
        holder, candidate = self.holder, self._candidate
        if holder.address == candidate.address or (holder.host != candidate.host and is_loopback(holder.address)):
            # This process itself would answer, or a stranger on this host.
            return Verdict.GONE
        return self._around.ping(holder.address, ASK_S)

    def _read(self) -> None:
        try:
            newest = read_advertisement(self._around.advertisements, self._candidate.journal_id)
        except JournalError as trouble:
            # Without the store there is no telling who else cannot reach it.
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

    def _is_over(self, verdict: Verdict) -> bool:
        if verdict is Verdict.SERVES:
            return self._renews and self._unrenewed_ms >= STUCK_MS
        # Nobody listens there on this very host; or it ended in good order. One that sends everybody away may serve all the same.
        if self._has_left or (verdict is Verdict.GONE and self.holder.host == self._candidate.host):
            return True
        return min(self._unheard_ms, self._unrenewed_ms) >= SILENCE_MS


class Waiting:
    """Pauses between two looks, which somebody may end; says once for whom.

    Parameters
    ----------
    waits : callable
        Called at the first pause with the address of the one that serves.
    told_to_end : Event
        Set by whoever wants the waiting to end.
    """

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
    """Look after whoever reigns until that one is silent; the log is read only to find and to follow a reign."""
    silent_epoch, address = 0, candidate.address
    while True:
        journal = open_journal()
        try:
            found = succeed(journal.control, candidate, around, silent_epoch=silent_epoch)
        except SparkQueueError as trouble:
            if trouble.code not in _PASSING:
                raise
            _LOG.warning("It stands by, since it cannot take over now: %s", trouble)
            waiting.pause(address)
            continue
        if isinstance(found, Reign):
            return found, journal
        watch = Watch(found, candidate, around)
        while not watch.is_silent():
            waiting.pause(watch.holder.address)
        silent_epoch, address = watch.holder.epoch, watch.holder.address
