"""Election: find the coordinator that reigns, or become the next one (DESIGN 6, 15.16).

The control log alone decides: a claim is one compare-and-swap, and its winner reigns until the next one. Everything
before the claim is courtesy, so that a living coordinator is not deposed: ask at the address of the last claim, be patient
with silence, and leave alone what another host renews.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from spark_queue.coordinator.reign_clock import ReignClock, check_skew
from spark_queue.core.log_tail import LogTail
from spark_queue.core.records import EpochClaimed, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.journal.store import Store
from spark_queue.ports import Clock, ControlLog
from spark_queue.protocol.connection import Presence, ping
from spark_queue.protocol.discovery import RENEWAL_S, Advertisement, AdvertisementStore, read_advertisement
from spark_queue.protocol.endpoint import LOCAL
from spark_queue.protocol.host import is_loopback, location_of

_LOG = logging.getLogger(__name__)


#: How long a coordinator may be silent before its reign is taken over, in seconds.
SILENCE_S = 10.0

#: How long an advertisement is watched for a sign of life, in seconds: three renewals.
WATCH_S = 3 * RENEWAL_S

#: Asks an address whether the journal's coordinator answers there, for at most some seconds.
Pinger = Callable[[str, float], Presence]


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
    """Return the ports of an election over a journal."""
    return ElectionPorts(
        advertisements=store,
        ping=lambda address, timeout_s: ping(address, journal_id, location_of(store), timeout_s, partial(LOCAL.token, store)),
        clock=clock,
        pause=time.sleep,
    )


def elect(control: ControlLog, candidate: Candidate, around: ElectionPorts) -> Reign:
    """Claim the next epoch, unless the coordinator of the last claim lives."""
    tail = load_log(control, candidate)
    if tail.claim is not None:
        _leave_living_alone(tail.claim, candidate, around)
    return claim_next(control, tail, candidate, around.clock)


def load_log(control: ControlLog, candidate: Candidate) -> LogTail:
    """Load the log of the journal that the candidate means."""
    tail = control.load()
    if tail.journal_id != candidate.journal_id:
        raise JournalError("JOURNAL_MISMATCH", expected=candidate.journal_id, path=candidate.path, found=tail.journal_id)
    # A claim of a process that cannot reign would depose one that can, and grow the log with each start.
    tail.refuse_newer(candidate.path)
    return tail


def _leave_living_alone(last: Record, candidate: Candidate, around: ElectionPorts) -> None:
    claim = last.body_as(EpochClaimed)
    address, same_host = claim.address, claim.host == candidate.host
    # Another host's loopback address leads to nobody, or to a stranger on this host; at the own one only the candidate listens.
    asked = address != candidate.address and (same_host or not is_loopback(address))
    begun_ms, known = around.clock.monotonic_ms(), read_advertisement(around.advertisements, candidate.journal_id)
    presence = around.ping(address, SILENCE_S) if asked else Presence.GONE
    if presence is Presence.SERVES:
        raise CoordinatorError("COORDINATOR_SERVES", path=candidate.path, address=address)
    # Nobody listens there for certain. A listener may be the one that serves, though it is full of calls, or not trusted here.
    if same_host and presence is Presence.GONE:
        return
    # Three renewals by the own monotonic clock; another host's clock is not compared with.
    while around.clock.monotonic_ms() - begun_ms < WATCH_S * 1000:
        around.pause(1.0)
        newest = read_advertisement(around.advertisements, candidate.journal_id)
        if newest is not None and newest != known:
            raise _renewed(newest, candidate, around.clock, presence, same_host=same_host)


def _renewed(newest: Advertisement, candidate: Candidate, clock: Clock, presence: Presence, *, same_host: bool) -> CoordinatorError:
    """Return why one that does not answer here is left alone, since it renews its advertisement."""
    if presence is Presence.UNTRUSTED:
        return CoordinatorError("COORDINATOR_UNTRUSTED", path=candidate.path, address=newest.address)
    if same_host:
        return CoordinatorError("COORDINATOR_SERVES", path=candidate.path, address=newest.address)
    age_s = max(0, clock.wall_ms() - newest.renewed_at_ms) // 1000
    return CoordinatorError(
        "COORDINATOR_ELSEWHERE", path=candidate.path, host=newest.host_name, pid=newest.pid, address=newest.address, age_s=age_s
    )


def claim_next(control: ControlLog, tail: LogTail, candidate: Candidate, clock: Clock) -> Reign:
    """Claim the epoch after the newest of a log, at the head of that log."""
    last = tail.claim
    if last is not None:
        address = last.body_as(EpochClaimed).address
        _LOG.info("The coordinator of epoch %d at %s does not answer; claiming epoch %d.", last.epoch, address, last.epoch + 1)
    check_skew(clock, last_record_ms=tail.last_at_ms, path=candidate.path, accepted=candidate.accept_clock)
    reign_clock = ReignClock(clock, last_record_ms=tail.last_at_ms)
    claim = Record(
        body=EpochClaimed(host=candidate.host, address=candidate.address, pid=candidate.pid),
        record=tail.next_record,
        epoch=1 if last is None else last.epoch + 1,
        at_ms=reign_clock.now_ms(),
    )
    control.append([claim], epoch=claim.epoch)
    return Reign(epoch=claim.epoch, state=tail.state, records=deque([*tail.records, claim]), clock=reign_clock)
