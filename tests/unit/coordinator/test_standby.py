"""A stand-in as a table of what it hears: whom it leaves alone, and whom it succeeds after how long (DESIGN 15.16)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from spark_queue.coordinator.election import Candidate, ElectionPorts, Reign
from spark_queue.coordinator.standby import SILENCE_MS, STUCK_MS, Holder, Waiting, Watch, wait_to_reign
from spark_queue.core.log_tail import LogTail
from spark_queue.core.records import Kind, Record
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.protocol.connection import Presence
from spark_queue.protocol.discovery import RENEWAL_S, Advertisement
from tests.fake_clock import FakeClock
from tests.records import detail_of, record_of

ME = Candidate(journal_id="j", path="/j", host="here", address="grpc+tls://b:2", pid=7)
THERE = Holder(epoch=1, host="there", address="grpc+tls://a:1")
HOUR_MS = 3_600_000


class World:
    """One who serves, or does not, and a stand-in that looks every second."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.answers = True
        self.renews = True
        #: None when its holder has taken it away.
        self.epoch: int | None = 1
        self.holder = THERE
        self.store_fails = False
        self.asked: list[str] = []
        self.reads = 0
        self.presence = Presence.GONE

    def read(self, key: str) -> bytes | None:
        self.reads += 1
        if self.store_fails:
            raise JournalError("STORE_FAILED", path="/j", doing="reading", reason="away.", next_step="Wait.")
        if self.epoch is None:
            return None
        period_ms = int(RENEWAL_S * 1000)
        renewed_at_ms = self.clock.monotonic_ms() // period_ms if self.renews else 0
        holder = self.holder
        return msgspec.json.encode(
            Advertisement(
                journal="j",
                address=holder.address,
                host=holder.host,
                host_name=holder.host,
                epoch=self.epoch,
                pid=1,
                renewed_at_ms=renewed_at_ms,
            )
        )

    def write(self, key: str, data: bytes) -> None:
        raise AssertionError("a stand-in writes no advertisement")

    def delete(self, keys: Iterable[str]) -> None:
        raise AssertionError("a stand-in deletes no advertisement")

    def ping(self, address: str, timeout_s: float) -> Presence:
        self.asked.append(address)
        return Presence.SERVES if self.answers and address == self.holder.address else self.presence

    def around(self) -> ElectionPorts:
        return ElectionPorts(advertisements=self, ping=self.ping, clock=self.clock, pause=lambda _: None)

    def watch(self, holder: Holder = THERE) -> Watch:
        self.holder = holder
        return Watch(holder, ME, self.around())

    def silent_after_s(self, watch: Watch, *, most_s: int = 120) -> int | None:
        """Return for how many seconds it looks before it takes the reign for silent; None for all of them."""
        for second in range(most_s):
            if watch.is_silent():
                return second
            self.clock.advance(1_000)
        return None


def test_one_that_answers_and_renews_is_left_alone_and_costs_a_read_in_five_seconds() -> None:
    world = World()
    assert world.silent_after_s(world.watch(), most_s=600) is None
    assert world.reads == 600 / 5


@pytest.mark.parametrize("presence", [Presence.GONE, Presence.SILENT])
def test_one_that_neither_answers_nor_renews_is_succeeded_after_twelve_seconds(presence: Presence) -> None:
    world = World()
    watch = world.watch()
    assert world.silent_after_s(watch, most_s=40) is None
    world.answers = world.renews = False
    world.presence = presence
    reads = world.reads
    assert world.silent_after_s(watch) == SILENCE_MS / 1000
    assert world.reads - reads == 1 + SILENCE_MS / 1000, "one read in a second"


def test_one_that_renews_without_answering_is_left_alone() -> None:
    """The network between the two is cut; others may reach it."""
    world = World()
    world.answers = False
    assert world.silent_after_s(world.watch(), most_s=600) is None


def test_another_hosts_loopback_is_never_asked() -> None:
    world = World()
    assert world.silent_after_s(world.watch(Holder(epoch=1, host="there", address="grpc://127.0.0.1:1")), most_s=60) is None
    assert world.asked == []
    world.renews = False
    assert world.silent_after_s(world.watch(Holder(epoch=1, host="there", address="grpc://127.0.0.1:1"))) == SILENCE_MS / 1000


def test_one_that_answers_and_was_seen_to_renew_is_succeeded_when_it_does_not_reach_the_store_any_more() -> None:
    world = World()
    watch = world.watch()
    assert world.silent_after_s(watch, most_s=40) is None
    world.renews = False
    after_s = world.silent_after_s(watch)
    assert after_s is not None
    assert STUCK_MS / 1000 <= after_s <= STUCK_MS / 1000 + 2 * RENEWAL_S


def test_one_that_answers_and_could_never_renew_is_left_alone() -> None:
    world = World()
    world.renews = False
    assert world.silent_after_s(world.watch(), most_s=600) is None


def test_one_that_ended_in_good_order_is_succeeded_at_once() -> None:
    world = World()
    watch = world.watch()
    assert world.silent_after_s(watch, most_s=20) is None
    world.answers, world.epoch = False, None
    assert world.silent_after_s(watch) == 0


def test_one_on_this_host_whose_address_refuses_is_succeeded_at_once_and_a_silent_one_is_not() -> None:
    here = Holder(epoch=1, host="here", address="grpc://127.0.0.1:1")
    world = World()
    world.answers = world.renews = False
    assert world.silent_after_s(world.watch(here)) == 0
    for presence in (Presence.SILENT, Presence.UNTRUSTED):
        world.presence = presence
        assert world.silent_after_s(world.watch(here)) == SILENCE_MS / 1000


def test_where_the_last_claim_stood_the_stand_in_does_not_ask_itself() -> None:
    world = World()
    assert world.silent_after_s(world.watch(Holder(epoch=1, host="here", address=ME.address))) == 0
    assert world.asked == []


def test_a_stand_in_that_slept_has_heard_nobody_and_looks_on() -> None:
    """Both may have slept: a machine that is moved stops all of them."""
    world = World()
    watch = world.watch()
    assert world.silent_after_s(watch, most_s=20) is None
    world.answers = world.renews = False
    assert not watch.is_silent()
    world.clock.advance(HOUR_MS)
    assert not watch.is_silent()
    world.answers = True
    assert world.silent_after_s(watch, most_s=20) is None


def test_a_stand_in_that_cannot_read_the_store_cannot_tell() -> None:
    world = World()
    watch = world.watch()
    world.silent_after_s(watch, most_s=20)
    world.answers, world.store_fails = False, True
    assert world.silent_after_s(watch, most_s=60) is None
    world.store_fails = world.renews = False
    assert world.silent_after_s(watch) == SILENCE_MS / 1000


def test_whoever_was_faster_is_looked_after_instead() -> None:
    world = World()
    watch = world.watch()
    world.silent_after_s(watch, most_s=20)
    world.holder, world.epoch = Holder(epoch=4, host="c", address="grpc+tls://c:1"), 4
    assert world.silent_after_s(watch, most_s=60) is None
    assert (watch.holder, world.asked[-1]) == (world.holder, "grpc+tls://c:1")


class Log:
    """A control log that others may extend while this one looks."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.loads = 0
        self.refusals: list[Exception] = []

    def load(self) -> LogTail:
        self.loads += 1
        return LogTail(tuple(self.records))

    def append(self, records: Sequence[Record], *, epoch: int) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.records.extend(records)

    def check(self, *, epoch: int) -> None:
        raise AssertionError("a stand-in has nothing to check")


def claim_of(holder: Holder, record: int) -> Record:
    detail = {"host": holder.host, "address": holder.address, "pid": 1}
    return record_of(kind=Kind.EPOCH_CLAIMED, record=record, epoch=holder.epoch, at_ms=2_000, detail=detail)


class Standing:
    """A stand-in that waits, and what becomes of others while it does."""

    def __init__(self, world: World, then: Callable[[int], None]) -> None:
        self.world = world
        created = record_of(kind=Kind.JOURNAL_CREATED, record=0, at_ms=1_000, detail={"journal": "j", "format": 1})
        self.log = Log([created, claim_of(THERE, 1)])
        self.told: list[str] = []
        self.pauses = 0
        self._then = then

    def wait(self, seconds: float) -> bool:
        self.world.clock.advance(round(seconds * 1000))
        self.pauses += 1
        self._then(self.pauses)
        return self.pauses > 600

    def reign(self) -> Reign:
        event: Any = SimpleNamespace(wait=self.wait)
        journal: Any = SimpleNamespace(control=self.log)
        return wait_to_reign(lambda: journal, ME, self.world.around(), Waiting(self.told.append, event))[0]


def test_a_stand_in_reads_the_log_twice_and_reigns_after_the_one_that_was_killed() -> None:
    world = World()

    def kill(pauses: int) -> None:
        world.answers = world.renews = pauses < 100

    standing = Standing(world, kill)
    reign = standing.reign()
    assert (reign.epoch, detail_of(standing.log.records[-1])["address"]) == (2, ME.address)
    assert (standing.log.loads, standing.told) == (2, [THERE.address])
    assert standing.pauses == pytest.approx(100 + SILENCE_MS / 1000, abs=1)


def test_a_stand_in_that_comes_too_late_stands_by_for_the_one_that_was_faster() -> None:
    """Three hosts: the log knows of a claim that the advertisement did not tell of yet."""
    world = World()
    world.answers = world.renews = False
    other = Holder(epoch=2, host="c", address="grpc+tls://c:1")

    def other_claims(pauses: int) -> None:
        if pauses == 5:
            standing.log.records.append(claim_of(other, 2))
            world.answers, world.holder = True, other
        elif pauses == 200:
            world.answers = False

    standing = Standing(world, other_claims)
    assert standing.reign().epoch == 3
    assert standing.pauses >= 200


def test_a_claim_that_is_lost_is_asked_for_again() -> None:
    world = World()
    world.answers = world.renews = False
    standing = Standing(world, lambda _: None)
    deposed = CoordinatorError("COORDINATOR_DEPOSED", epoch=2, path="/j", reason="another was faster")
    standing.log.refusals = [deposed, JournalError("STORE_FAILED", path="/j", doing="it", reason="r.", next_step="n.")]
    assert standing.reign().epoch == 2
    assert standing.log.refusals == []


def test_what_waiting_does_not_mend_is_told() -> None:
    world = World()
    world.answers = world.renews = False
    standing = Standing(world, lambda _: None)
    standing.log.refusals = [CoordinatorError("CLOCK_SKEW", path="/j", ahead_s=90_000)]
    with pytest.raises(CoordinatorError, match="CLOCK_SKEW"):
        standing.reign()


def test_waiting_ends_when_told_to() -> None:
    told = threading.Event()
    told.set()
    with pytest.raises(KeyboardInterrupt):
        Waiting(lambda _: None, told).pause("a")
