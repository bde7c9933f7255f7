"""Election as a table of situations: who is left alone, who is deposed, who is refused (DESIGN 6, 15.16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from spark_queue.coordinator.election import SILENCE_S, Candidate, ElectionPorts, elect
from spark_queue.coordinator.standby import Holder, Watch
from spark_queue.core.log_tail import LogTail
from spark_queue.core.records import Kind, Record
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.protocol.connection import Presence, ping
from spark_queue.protocol.discovery import RENEWAL_S, Advertisement
from tests.fake_clock import FakeClock
from tests.records import detail_of, record_of

CREATED = record_of(kind=Kind.JOURNAL_CREATED, record=0, at_ms=1_000, detail={"journal": "j", "format": 1})
ME = Candidate(journal_id="j", path="/j", host="here", address="grpc://127.0.0.1:2", pid=7)
DAY_MS = 86_400_000


def claim_of(host: str, address: str, *, at_ms: int = 2_000) -> Record:
    return record_of(kind=Kind.EPOCH_CLAIMED, record=1, epoch=1, at_ms=at_ms, detail={"host": host, "address": address, "pid": 1})


class Log:
    """A control log that remembers what was appended."""

    def __init__(self, *records: Record) -> None:
        self.records = list(records)

    def load(self) -> LogTail:
        return LogTail(tuple(self.records))

    def append(self, records: Sequence[Record], *, epoch: int) -> None:
        assert all(record.epoch == epoch for record in records)
        self.records.extend(records)

    def check(self, *, epoch: int) -> None:
        raise AssertionError("an election has nothing to check")


class Hints:
    """A store whose hint may be renewed each time that a second passes."""

    def __init__(self, hint: Advertisement | None = None, *, living: bool = False) -> None:
        self.hint = hint
        self.living = living

    def read(self, key: str) -> bytes | None:
        if self.hint is not None and self.living:
            self.hint = msgspec.structs.replace(self.hint, renewed_at_ms=self.hint.renewed_at_ms + 1)
        return None if self.hint is None else msgspec.json.encode(self.hint)

    def write(self, key: str, data: bytes) -> None:
        raise AssertionError("an election writes no hint")

    def delete(self, keys: Iterable[str]) -> None:
        raise AssertionError("an election deletes no hint")


class World:
    """What an election sees, and what it did."""

    def __init__(self, *, presence: Presence = Presence.GONE, hints: Hints | None = None) -> None:
        self.clock = FakeClock()
        self.presence = presence
        self.hints = hints or Hints()
        self.pinged: list[tuple[str, float]] = []

    def ping(self, address: str, timeout_s: float) -> Presence:
        self.pinged.append((address, timeout_s))
        return self.presence

    def around(self) -> ElectionPorts:
        return ElectionPorts(advertisements=self.hints, ping=self.ping, clock=self.clock, pause=self.pause)

    def pause(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))


def hint(host: str) -> Advertisement:
    return Advertisement(journal="j", address="grpc://127.0.0.1:1", host=host, host_name=host, epoch=1, pid=1, renewed_at_ms=0)


@contextmanager
def serves(address: str) -> Iterator[None]:
    """Be refused because the coordinator at an address answers."""
    with pytest.raises(CoordinatorError, match="COORDINATOR_SERVES") as refused:
        yield
    assert refused.value.facts["address"] == address


def test_the_first_coordinator_claims_epoch_1() -> None:
    log, world = Log(CREATED), World()
    reign = elect(log, ME, world.around())
    assert reign.epoch == 1
    claim = log.records[-1]
    assert (claim.kind, claim.record, claim.epoch) == (Kind.EPOCH_CLAIMED, 1, 1)
    assert detail_of(claim) == {"host": "here", "address": "grpc://127.0.0.1:2", "pid": 7}
    assert list(reign.records) == log.records
    assert world.pinged == []


def test_a_coordinator_that_answers_is_left_alone() -> None:
    log, world = Log(CREATED, claim_of("here", "grpc://127.0.0.1:1")), World(presence=Presence.SERVES)
    with serves("grpc://127.0.0.1:1"):
        elect(log, ME, world.around())
    assert world.pinged == [("grpc://127.0.0.1:1", SILENCE_S)]
    assert len(log.records) == 2


@pytest.mark.parametrize("presence", [Presence.GONE, Presence.SILENT])
def test_one_that_refuses_or_is_silent_on_this_host_is_succeeded(presence: Presence) -> None:
    log = Log(CREATED, claim_of("here", "grpc://127.0.0.1:1"))
    reign = elect(log, ME, World(presence=presence).around())
    assert (reign.epoch, log.records[-1].epoch, log.records[-1].record) == (2, 2, 2)


def test_one_on_this_host_that_sends_everybody_away_is_left_alone_while_it_renews() -> None:
    """It is full of calls or connections, of strangers perhaps, and others are served."""
    world = World(presence=Presence.SILENT, hints=Hints(hint("here"), living=True))
    log = Log(CREATED, claim_of("here", "grpc://127.0.0.1:1"))
    with serves("grpc://127.0.0.1:1"):
        elect(log, ME, world.around())
    assert len(log.records) == 2


def test_only_the_newest_claim_is_asked() -> None:
    older = claim_of("here", "grpc://127.0.0.1:1")
    newer = replace(claim_of("here", "grpc://127.0.0.1:9"), record=2, epoch=2)
    world = World(presence=Presence.SERVES)
    with serves("grpc://127.0.0.1:9"):
        elect(Log(CREATED, older, newer), ME, world.around())


@pytest.mark.parametrize("living", [True, False])
def test_one_on_this_host_whose_certificate_is_not_trusted_is_left_alone_while_it_renews(*, living: bool) -> None:
    """Who lacks its certificate cannot tell it from a stranger: a verb on its host must not depose it."""
    hint = Advertisement(
        journal="j", address="grpc+tls://queue-a:7337", host="here", host_name="queue-a", epoch=1, pid=1, renewed_at_ms=0
    )
    world = World(presence=Presence.UNTRUSTED, hints=Hints(hint, living=living))
    log = Log(CREATED, claim_of("here", "grpc+tls://queue-a:7337"))
    if living:
        with pytest.raises(CoordinatorError, match=r"\[COORDINATOR_UNTRUSTED\].*SPARKQ_TLS_ROOTS"):
            elect(log, ME, world.around())
    else:
        assert elect(log, ME, world.around()).epoch == 2


def test_another_hosts_loopback_is_never_knocked_at() -> None:
    world = World(presence=Presence.SERVES)
    elect(Log(CREATED, claim_of("there", "grpc://127.0.0.1:1")), ME, world.around())
    assert world.pinged == []


def test_a_served_address_of_another_host_is_used() -> None:
    world = World(presence=Presence.SERVES)
    address = "grpc+tls://10.0.0.5:7000"
    with serves(address):
        elect(Log(CREATED, claim_of("there", address)), ME, world.around())


def test_one_that_listens_where_the_last_claim_stood_does_not_take_itself_for_it() -> None:
    """`sparkq serve --bind` with a fixed port: the candidate itself would answer at the last one's address."""
    log, world = Log(CREATED, claim_of("here", ME.address)), World(presence=Presence.SERVES)
    reign = elect(log, ME, world.around())
    assert (reign.epoch, world.pinged) == (2, [])


def test_own_address_of_another_hosts_claim_still_leaves_its_living_hint_alone() -> None:
    """An address may move from host to host; only its hint tells whether the other still lives."""
    log = Log(CREATED, claim_of("there", "grpc+tls://queue.example:7000"))
    me = replace(ME, address="grpc+tls://queue.example:7000")
    with pytest.raises(CoordinatorError, match="COORDINATOR_ELSEWHERE"):
        elect(log, me, World(presence=Presence.SERVES, hints=Hints(hint("there"), living=True)).around())


def test_another_host_that_renews_its_hint_is_not_succeeded() -> None:
    log, world = Log(CREATED, claim_of("there", "grpc://127.0.0.1:1")), World()
    living = msgspec.structs.replace(hint("there"), host_name="queue-a", renewed_at_ms=world.clock.wall_ms() - 7_000)
    world.hints = Hints(living, living=True)
    with pytest.raises(CoordinatorError, match="COORDINATOR_ELSEWHERE") as refused:
        elect(log, ME, world.around())
    assert "another host: process 1 on 'queue-a', at grpc://127.0.0.1:1, last heard from 7 s ago" in str(refused.value)
    assert len(log.records) == 2


@pytest.mark.parametrize("left", [None, hint("there")], ids=["no hint", "a stale hint"])
def test_another_host_that_is_silent_for_three_renewals_is_succeeded(left: Advertisement | None) -> None:
    world = World(hints=Hints(left))
    began_ms = world.clock.monotonic_ms()
    elect(Log(CREATED, claim_of("there", "grpc://127.0.0.1:1")), ME, world.around())
    assert world.clock.monotonic_ms() - began_ms == 3 * RENEWAL_S * 1000


def test_the_hint_never_permits_what_the_log_forbids() -> None:
    class TakenLog(Log):
        def append(self, records: Sequence[Record], *, epoch: int) -> None:
            raise CoordinatorError("COORDINATOR_DEPOSED", epoch=epoch, path="/j", reason="another was faster")

    log = TakenLog(CREATED, claim_of("here", "grpc://127.0.0.1:1"))
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        elect(log, ME, World().around())


def test_another_journal_at_the_path_is_refused() -> None:
    with pytest.raises(JournalError, match="JOURNAL_MISMATCH.*for journal other.*is journal j"):
        elect(Log(CREATED), replace(ME, journal_id="other"), World().around())


def test_a_log_more_than_a_day_ahead_of_the_clock_is_refused_until_accepted() -> None:
    world = World()
    ahead_ms = world.clock.wall_ms() + DAY_MS + 5_000
    log = Log(CREATED, claim_of("here", "grpc://127.0.0.1:1", at_ms=ahead_ms))
    with pytest.raises(CoordinatorError, match="CLOCK_SKEW.*is 86405 s ahead.*--accept-clock"):
        elect(log, ME, world.around())
    reign = elect(log, replace(ME, accept_clock=True), world.around())
    assert reign.clock.now_ms() == ahead_ms


def test_a_log_within_a_day_ahead_moves_the_reigns_time_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    ahead_ms = world.clock.wall_ms() + 61_000
    reign = elect(Log(CREATED, claim_of("here", "grpc://127.0.0.1:1", at_ms=ahead_ms)), ME, world.around())
    assert (reign.clock.now_ms(), reign.records[-1].at_ms) == (ahead_ms, ahead_ms)
    assert "61 s ahead" in caplog.text


def test_within_a_reign_time_moves_with_the_monotonic_clock_only() -> None:
    world = World()
    reign = elect(Log(CREATED), ME, world.around())
    began_ms = reign.clock.now_ms()
    world.clock.set_wall(began_ms - 10 * DAY_MS)
    world.clock.advance(5)
    assert reign.clock.now_ms() == began_ms + 5
    world.clock.set_wall(began_ms + 10 * DAY_MS)
    assert reign.clock.now_ms() == began_ms + 5


@pytest.mark.parametrize("address", ["grpc://[bad", "grpc://1.2.3.4:port", "nonsense", "", "grpc://h:99999999", "\x00"])
def test_a_claim_that_names_no_address_keeps_nobody_from_reigning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for host in ("here", "there"):
        world, claim = World(), claim_of(host, address)
        around = replace(world.around(), ping=lambda address, _: ping(address, "j", "/j", 1.0))
        assert elect(Log(CREATED, claim), ME, around).epoch == 2
        assert Watch(Holder.of_claim(claim), ME, around).is_silent() is (host == "here")


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (record_of(kind="of_tomorrow", record=1, at_ms=1_500, detail={"critical": True}), "records of kind 'of_tomorrow'"),
        (
            record_of(
                kind=Kind.DEFINITIONS_APPLIED, record=1, at_ms=1_500, detail={"definitions": {"of_tomorrow": 1}, "resets": {}}
            ),
            "Unknown key 'of_tomorrow'",
        ),
        (
            record_of(
                kind=Kind.DEFINITIONS_APPLIED, record=1, at_ms=1_500,
                detail={"definitions": {"journal": {"durability": "of tomorrow"}}, "resets": {}},
            ),
            "'of tomorrow', but it must be",
        ),
    ],
)  # fmt: skip
def test_who_cannot_fold_the_log_does_not_claim_it(record: Record, what: str) -> None:
    world, log = World(), Log(CREATED, record)
    with pytest.raises(JournalError, match=rf"PROTOCOL_NEWER.*/j.*{what}.*Upgrade"):
        elect(log, ME, world.around())
    assert log.records == [CREATED, record]
