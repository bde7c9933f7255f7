"""Where messages wait and no coordinator is there to give them to anybody, the first page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue.clock import SystemClock
from spark_queue.following.follower import ABSENT_MS
from spark_queue.protocol.discovery import Advertisement, Advertiser
from tests.fake_clock import FakeClock
from tests.unit.dashboard.asking import asker_of, following
from tests.unit.dashboard.dashboard_world import DashboardWorld

ALARM = "No coordinator runs, and {} messages wait in {} queue: none is delivered."


def advertiser(world: DashboardWorld, clock: FakeClock) -> Advertiser:
    own = Advertisement(
        journal=world.opened.journal_id, address="grpc://127.0.0.1:1", host="h", host_name="h", epoch=1, pid=1, renewed_at_ms=0
    )
    return Advertiser(world.journal.store, own, wall_ms=clock.wall_ms, deposed=lambda _: None)


@pytest.fixture
def world(tmp_path: Path) -> DashboardWorld:
    return DashboardWorld(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock(SystemClock().wall_ms())
    monkeypatch.setattr("spark_queue.following.follower.SystemClock", lambda: made)
    return made


def test_absence_is_an_alarm_where_messages_wait_for_consumers(world: DashboardWorld) -> None:
    follower = following(world.journal)
    visitor = asker_of([follower])
    assert "No coordinator runs" not in visitor.get("/").text
    world.publish(4, 1)
    # Dead letters wait for people.
    world.expire("BILLING", range(4), "broken", 2)
    world.commit()
    follower.refresh()
    for path in ("/", "/j/shop"):
        assert "No coordinator runs" not in visitor.get(path).text
    world.publish(3, 3, topic="RETURNS")
    world.commit()
    follower.refresh()
    for path in ("/", "/j/shop"):
        assert f"<p>{ALARM.format(3, 1)}" in visitor.get(path).text


def test_a_coordinator_counts_as_absent_once_it_says_nothing_new(world: DashboardWorld, clock: FakeClock) -> None:
    """Whatever the clocks of the two hosts say: its own may be hours behind."""
    world.publish(2, 1, topic="RETURNS")
    world.commit()
    theirs = FakeClock(clock.wall_ms() - 7_200_000)
    coordinator = advertiser(world, theirs)
    coordinator._renew()
    follower = following(world.journal)
    visitor, revisions = asker_of([follower]), [follower.revision]

    def is_told() -> bool:
        follower.refresh()
        revisions.append(follower.revision)
        return ALARM.format(2, 1) in visitor.get("/").text

    assert not is_told()
    clock.advance(ABSENT_MS - 1)
    assert not is_told()
    clock.advance(1)
    assert is_told()
    assert revisions[-1] > revisions[-2], "browsers are told"
    theirs.advance(5_000)
    coordinator._renew()
    assert not is_told()
    world.journal.store.delete(["coordinator.json"])
    assert is_told()
