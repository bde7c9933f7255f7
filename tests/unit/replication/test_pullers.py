"""The threads beside the loop: who lives, who is pulled, and how pullers wait for each other (DESIGN 17.3, 17.6)."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from spark_queue.core.deciding.instances.replicating import Pulled
from spark_queue.core.definitions import parsing
from spark_queue.errors import JournalError
from spark_queue.journal.store import CONTROL_LOG, Store
from spark_queue.replication import pullers
from spark_queue.replication.beacon import BEACON_KEY, Beacon, BeaconThread, Hearing, read_beacon
from spark_queue.replication.exchange import ApplyPulled, PullProgressQuery, PullState
from spark_queue.replication.pullers import Pullers
from tests.fake_clock import FakeClock
from tests.unit.replication.conftest import HandOver, Meet, Start, definitions
from tests.waiting import wait_until

BOTH = ("virginia", "tokyo")

SLOW = JournalError("STORE_FAILED", doing="reading", path="/virginia", reason="it was slow.", next_step="Wait.")


@pytest.fixture
def virginia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Make the folders of two journals, whose beacons are looked at all the time; returns that of the peer."""
    monkeypatch.setattr(pullers, "RENEWAL_S", 0.01)
    for name in ("frankfurt", "virginia"):
        (tmp_path / name / CONTROL_LOG).mkdir(parents=True)
    return Store(str(tmp_path / "virginia"))


def lost(peer: str) -> JournalError:
    return JournalError("JOURNAL_RESTORED", peer=peer, record="record 70", path="here", since=2)


def written(store: Store, clock: FakeClock, gaps: list[int | None]) -> BeaconThread:
    """Let a reign write its first beacon, and no other."""
    told: list[BeaconThread] = []

    def seen() -> dict[str, int]:
        told[0].end()
        return {}

    told.append(BeaconThread(store, "frankfurt", seen, clock, gaps))
    assert told[0].age_ms() is None
    told[0].start()
    told[0].join()
    return told[0]


def test_a_beacon_rises_also_where_the_last_one_was_lost(virginia: Store, clock: FakeClock) -> None:
    numbers = []
    for is_lost in (False, False, True):
        if is_lost:
            clock.advance(5_000)
            virginia.delete([BEACON_KEY])
        written(virginia, clock, [])
        beacon = read_beacon(virginia)
        assert beacon is not None
        numbers.append(beacon.number)
    assert numbers[0] < numbers[1] < numbers[2]


def test_how_long_a_beacon_was_not_written_is_told_by_the_clock_that_has_gone_further(
    virginia: Store, clock: FakeClock, tmp_path: Path
) -> None:
    """R108: a host that slept was silent, though one of its clocks stood still; what failed was not written."""
    gaps: list[int | None] = []
    thread = written(virginia, clock, gaps)
    clock.advance(7_000)
    assert thread.age_ms() == 7_000
    clock.set_wall(clock.wall_ms() + 3_600_000)
    assert thread.age_ms() == 3_607_000
    for _ in range(2):
        written(virginia, clock, gaps)
    nobody_knows, gap_ms = gaps
    assert nobody_knows is None, "there was none"
    assert gap_ms is not None
    assert abs(gap_ms - 3_607_000) < 1_000, "its number tells when it was written"
    assert written(Store(str(tmp_path / "there is nothing")), clock, gaps).age_ms() is None


@pytest.mark.usefixtures("virginia")
def test_a_look_that_gets_no_answer_has_found_no_beacon_after_a_while(
    start: Start, goes_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R108: else nothing of a lost site was ever claimed whose store hangs; what never was looked at is no silence."""
    looking = threading.Event()

    def hangs(_store: Store) -> None:
        looking.set()
        goes_on.wait(60)

    monkeypatch.setattr(pullers, "read_beacon", hangs)
    monkeypatch.setattr(pullers, "RENEWAL_S", 3_600)
    running = start(lambda *_: False)
    assert looking.wait(60)
    never_ms = running.heard().look_age_ms
    monkeypatch.setattr(pullers, "RENEWAL_S", 0.01)
    wait_until(lambda: running.heard().look_age_ms == 10 < never_ms)
    assert running.heard().level_age_ms == 0, "who does not answer cannot be read"
    monkeypatch.setattr(pullers, "RENEWAL_S", 3_600)
    goes_on.set()
    wait_until(lambda: running.heard().look_age_ms < never_ms)
    looking.clear()
    running.look_soon()
    assert looking.wait(60), "somebody waits for it"
    assert running.heard().level_age_ms is None, "its log is begun anew"


@pytest.mark.parametrize(
    "text",
    [b"{", b"[" * 50_000, b"x" * 1_000_000, b'{"instance": "../x", "number": 1}', b'{"instance": "virginia", "number": 1e30}',
     b'{"instance": "virginia", "number": 1, "seen": {"tokyo": 99999999999999999999}}', b'{"instance": "virginia", "number": -1}'],
)  # fmt: skip
def test_a_beacon_that_nobody_of_ours_writes_is_none(virginia: Store, text: bytes) -> None:
    virginia.write(BEACON_KEY, text)
    assert read_beacon(virginia) is None


def test_a_puller_goes_on_after_whatever_went_wrong(start: Start) -> None:
    stepped = threading.Semaphore(0)

    def step(*_: object) -> None:
        stepped.release()
        raise KeyError("virginia")

    start(step)
    assert stepped.acquire(timeout=60)
    assert stepped.acquire(timeout=60), "it is made anew"


@pytest.mark.parametrize(
    ("trouble", "for_s", "is_so"),
    [
        (None, 9.0, False),
        (JournalError("PEER_AWAY", peer="virginia", path="/v"), 0.0, False),
        (KeyError("virginia"), 4.9, False),
        (KeyError("virginia"), 5.0, True),
        (JournalError("PEER_REPLACED", peer="virginia", expected="u", found="v", journal="/f"), 0.0, True),
    ],
)
def test_a_peer_that_fails_once_can_still_be_heard(trouble: BaseException | None, for_s: float, *, is_so: bool) -> None:
    assert pullers.is_unreadable(trouble, for_s=for_s) is is_so


def test_who_could_be_read_a_moment_later_is_not_level(start: Start, goes_on: threading.Event) -> None:
    failures = [SLOW]

    def step(*_: object) -> None:
        if failures:
            raise failures.pop()
        goes_on.wait(60)

    running = start(step)
    wait_until(lambda: running.reports()["virginia"].trouble is not None)
    assert running.heard().level_age_ms is None
    goes_on.set()
    wait_until(lambda: running.heard().level_age_ms is not None)


def test_a_peer_that_is_being_read_again_can_be_read_however_long_that_takes(
    start: Start, goes_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R110: its log may say that what would be claimed is done; the last step that ended says only what was."""
    monkeypatch.setattr(pullers, "_PASSES_WITHIN_S", 0.0)
    failures, fails, reads = [SLOW], threading.Event(), threading.Event()

    def step(*_: object) -> None:
        if failures:
            fails.wait(60)
            raise failures.pop()
        reads.set()
        goes_on.wait(60)

    running = start(step)
    assert running.heard().level_age_ms is None, "its first step goes on"
    fails.set()
    assert reads.wait(60)
    assert running.reports()["virginia"].trouble is SLOW
    found = running.heard()
    assert (found.peers["virginia"].is_readable, found.level_age_ms) == (True, None)
    assert not running.are_compared()
    goes_on.set()
    wait_until(lambda: running.heard().level_age_ms is not None)


def test_a_peer_that_fails_cannot_be_read_between_its_steps(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pullers, "_PASSES_WITHIN_S", 0.0)

    def step(*_: object) -> None:
        raise SLOW

    running = start(step)
    wait_until(lambda: running.heard().level_age_ms == 0)
    wait_until(running.are_compared)
    assert not running.reports()["virginia"].is_compared


@pytest.mark.parametrize("shows_life", [True, False])
def test_a_beacon_is_written_also_where_no_peer_is_named_any_more(start: Start, virginia: Store, *, shows_life: bool) -> None:
    """R130: others count on who owns something, and would take it for lost."""
    running, own = start(lambda *_: None), Store(virginia.path.replace("virginia", "frankfurt"))
    wait_until(lambda: read_beacon(own) is not None)
    own.delete([BEACON_KEY])
    running.keep(parsing.parse({"journal": {"instance": "frankfurt"}}), frozenset(), shows_life=shows_life)
    if shows_life:
        wait_until(lambda: read_beacon(own) is not None)
    else:
        assert (running.heard().own_number, running._beacon) == (None, None)


def test_what_fails_later_takes_nothing_back_of_what_a_peer_has_shown(start: Start) -> None:
    """A journal that was restored must not go on because the store of who has shown it fails."""
    shown = lost("virginia")
    failures = [SLOW, shown]

    def step(*_: object) -> None:
        if failures:
            raise failures[-1]

    running = start(step)
    wait_until(lambda: running.reports()["virginia"].trouble is shown)
    assert running.are_compared()
    failures.pop()
    wait_until(lambda: running.reports()["virginia"].trouble is SLOW)
    assert running.restored() is shown
    failures.pop()
    wait_until(lambda: running.restored() is None)


@pytest.mark.parametrize("answers", [True, False])
def test_nothing_is_taken_before_every_peer_was_searched_for_what_is_lost_here_or_has_answered_nothing_for_some_time(
    start: Start, goes_on: threading.Event, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """Who shows nothing may have what only another one shows to be lost; a store may hang for minutes before it fails."""
    monkeypatch.setattr(pullers, "HEARS_MS", 60_000 if answers else 1_000)
    taken = threading.Event()

    def step(peer: str, meet: Meet, _: object) -> None:
        if peer == "tokyo":
            goes_on.wait(60)
        meet()
        taken.set()

    running = start(step, *BOTH)
    assert not taken.wait(0.2)
    assert not running.are_compared()
    if answers:
        goes_on.set()
    assert taken.wait(60)
    assert running.are_compared() is answers


def test_a_peer_that_lives_is_heard_of_whatever_keeps_it_from_being_pulled(
    start: Start, goes_on: threading.Event, virginia: Store
) -> None:
    """R108: what it has leased is claimed where it counts as lost; after a failure the next pull may be half a minute away."""
    copying, number = threading.Event(), 0

    def step(*_: object) -> None:
        copying.set()
        goes_on.wait(60)

    running = start(step)

    def is_heard() -> bool:
        nonlocal number
        number += 1
        virginia.write(BEACON_KEY, msgspec.json.encode(Beacon(instance="virginia", number=number)))
        return running.heard().rises.get("virginia", 0) >= 3

    assert copying.wait(60)
    wait_until(is_heard)


def test_a_beacon_that_has_seen_what_cannot_be_is_told_and_the_peer_is_pulled(start: Start, virginia: Store) -> None:
    virginia.write(BEACON_KEY, msgspec.json.encode(Beacon(instance="virginia", number=5, seen={"frankfurt": 2**50, "tokyo": 9})))
    running = start(lambda *_: True, known={"tokyo"})
    wait_until(lambda: running.reports()["virginia"].trouble is not None)
    assert str(running.reports()["virginia"].trouble).startswith("[BEACON_DOUBTED] Part of the beacon of peer 'virginia'")
    assert running.heard().level_age_ms is not None
    assert running.heard().rises == {"virginia": 1, "tokyo": 1}
    virginia.write(BEACON_KEY, msgspec.json.encode(Beacon(instance="virginia", number=6)))
    wait_until(lambda: running.reports()["virginia"].trouble is None)


def hear(hearing: Hearing, instance: str, number: int, **seen: int) -> str | None:
    """Let frankfurt, whose own number is 7, hear a beacon; of osaka nothing else tells."""
    beacon = Beacon(instance=instance, number=number, seen=seen)
    return hearing.hear(beacon, own="frankfurt", own_number=7, known={"virginia", "tokyo"})


def test_what_a_peer_claims_to_have_seen_changes_nothing_but_what_it_says_itself(caplog: pytest.LogCaptureFixture) -> None:
    hearing = Hearing()
    assert hear(hearing, "virginia", 5, frankfurt=7) is None
    assert hear(hearing, "virginia", 6, frankfurt=99) == "it has seen number 99 of this instance, which is at 7."
    for _ in range(2):
        assert hear(hearing, "virginia", 6, osaka=3) is None
    assert caplog.messages == ["Peer 'virginia' has seen instance 'osaka', which is unknown otherwise."]
    assert (hearing.rises(), hearing.newest()) == ({"virginia": 2}, {"virginia": 6})


def test_nobody_makes_an_instance_silent_by_a_number_that_it_never_had() -> None:
    hearing = Hearing()
    hear(hearing, "virginia", 5, tokyo=2**52)
    for number in (8, 9):
        hear(hearing, "virginia", 5, tokyo=2**52)
        hear(hearing, "tokyo", number)
    assert (hearing.rises(), hearing.newest()) == ({"virginia": 1, "tokyo": 3}, {"virginia": 5, "tokyo": 9})


def test_an_instance_is_heard_of_by_others_where_they_know_more_than_it_said_here() -> None:
    hearing = Hearing()
    hear(hearing, "tokyo", 8)
    hear(hearing, "virginia", 5, tokyo=8)
    assert hearing.rises()["tokyo"] == 1, "it is no news"
    hear(hearing, "virginia", 6, tokyo=9)
    assert hearing.rises()["tokyo"] == 2


def test_what_a_peer_shows_no_more_is_forgotten_before_anything_of_it_is_handed_over(start: Start) -> None:
    """The loop refuses what is handed over while anybody shows a loss: a peer that was put back, too, would be refused for ever."""
    shown, held = [lost("virginia")], list[JournalError | None]()
    running: list[Pullers] = []

    def step(peer: str, meet: Meet, _: object) -> None:
        if peer == "virginia" and shown:
            raise shown[0]
        meet()
        if peer == "virginia" and running:
            held.append(running[0].restored())

    running.append(start(step, *BOTH))
    wait_until(lambda: running[0].restored() is not None)
    shown.clear()
    wait_until(lambda: bool(held))
    assert held[0] is None


def test_who_is_refused_since_another_peer_shows_a_loss_shows_none(start: Start) -> None:
    refused = threading.Event()

    def step(peer: str, meet: Meet, _: object) -> None:
        meet()
        if peer == "virginia":
            refused.set()
            raise lost("tokyo")

    running = start(step, *BOTH)
    assert refused.wait(60)
    wait_until(lambda: running.reports()["virginia"].trouble is not None)
    assert running.restored() is None


def test_what_was_read_before_somebody_said_that_the_journal_was_restored_is_over(
    start: Start, goes_on: threading.Event, tmp_path: Path
) -> None:
    """It is in line already, and passed over what was lost."""
    asked, in_line = list[ApplyPulled](), threading.Event()
    pulled = Pulled(peer="virginia", journal="uuid", record=7, digest="")

    def ask(request: PullProgressQuery | ApplyPulled) -> PullState | bool:
        assert isinstance(request, ApplyPulled)
        asked.append(request)
        in_line.set()
        goes_on.wait(60)
        return False

    def step(peer: str, _: object, hand_over: HandOver) -> None:
        if peer == "virginia" and not asked:
            hand_over(ApplyPulled(pulled=pulled, definitions=definitions(tmp_path, *BOTH)))

    running = start(step, *BOTH, ask=ask)
    assert in_line.wait(60)
    assert not asked[0].is_over()
    running.begin_anew()
    assert asked[0].is_over()


def test_a_peer_may_show_no_more_while_it_is_asked(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop would end in doubt."""
    running = start(lambda *_: None, *BOTH)
    shown = [lost("tokyo"), None]
    for thread in running._threads.values():
        thread.end()
        thread.join()
    monkeypatch.setattr(pullers._PullThread, "restored", property(lambda _: shown.pop(0) if shown else None), raising=False)
    found = running.restored()
    assert found is None or found.facts["peer"] == "tokyo"


def test_what_a_peer_says_of_a_restored_backup_is_over_once_it_is_no_peer_any_more(start: Start) -> None:
    def step(*_: object) -> None:
        raise lost("virginia")

    running = start(step)
    wait_until(lambda: running.restored() is not None)
    running.keep(parsing.parse({}), frozenset(), shows_life=False)
    assert running.restored() is None
