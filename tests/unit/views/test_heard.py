"""Who is alive: an idle consumer that polls leaves no record, and its coordinator tells of it (DESIGN 6)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_queue.clock import SystemClock
from spark_queue.core import commands
from spark_queue.core.deciding.session import heard_of
from spark_queue.metrics import exposition
from spark_queue.protocol.discovery import Advertisement, Advertiser, read_heard
from spark_queue.views import explain, read_view, state_at
from tests.unit.coordinator.loop_world import Planner, World
from tests.unit.dashboard.asking import asker_of, following
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.unit.metrics.exposed import value


@pytest.fixture
def world(tmp_path: Path) -> DashboardWorld:
    """Return a journal with one consumer that was heard an hour ago, and a message that waits for it."""
    made = DashboardWorld(tmp_path, hours=2)
    made.attach("BILLING", "east", 60)
    made.publish(1, 60)
    made.commit()
    return made


def tell(world: DashboardWorld, heard: Any) -> None:
    """Let the journal's coordinator say when planners called last."""
    own = Advertisement(
        journal=world.opened.journal_id,
        address="grpc://127.0.0.1:1",
        host="h",
        host_name="h",
        epoch=1,
        pid=1,
        renewed_at_ms=0,
        heard=heard,
    )
    advertiser = Advertiser(world.journal.store, own, wall_ms=SystemClock().wall_ms, deposed=lambda _: None)
    advertiser.know(lambda: heard)
    advertiser._renew()


def seen_ms(world: DashboardWorld) -> int:
    (row,) = read_view(state_at(world.opened), "subscriptions", "BILLING").to_pylist()
    return int(row["last_seen_at"].timestamp() * 1_000 + 0.5)


def test_idle_consumer_was_seen_when_its_coordinator_heard_it(world: DashboardWorld) -> None:
    assert seen_ms(world) == world.at(60)
    tell(world, {"BILLING": {"east": world.at(119), "west": world.at(119)}, "GONE": {"east": world.at(120)}})
    assert seen_ms(world) == world.at(119)
    told = str(explain(world.opened, "BILLING", 0).reason)
    assert "last heard: 'east' 60 s ago." in told or "last heard: 'east' 61 s ago." in told
    assert "log alone" not in told
    exposed = exposition([world.journal], per_subscription=True)
    assert value(exposed, "sparkqueue_subscription_last_seen_timestamp_seconds", subscription="east") == world.at(119) / 1_000


@pytest.mark.parametrize("beyond", [10**6, 10**30])
def test_hint_says_nothing_that_its_reader_knows_better(world: DashboardWorld, beyond: int) -> None:
    """Anybody may have written it: nobody was heard before its last record, or later than now."""
    tell(world, {"BILLING": {"east": -beyond}})
    assert seen_ms(world) == world.at(60)
    before_ms = SystemClock().wall_ms()
    tell(world, {"BILLING": {"east": before_ms + beyond}})
    assert before_ms <= seen_ms(world) <= SystemClock().wall_ms()


@pytest.mark.parametrize("heard", [None, [], {"BILLING": 3}, {"BILLING": {"east": "now"}}])
def test_hint_of_another_form_says_nothing(world: DashboardWorld, heard: Any) -> None:
    tell(world, heard)
    assert read_heard(world.journal.store, world.opened.journal_id) == {}


def test_who_reads_the_log_alone_says_so(world: DashboardWorld) -> None:
    told = str(explain(world.opened, "BILLING", 0).reason)
    assert "That is by the log alone: polls that find nothing leave no record," in told
    tell(world, {"BILLING": {"east": world.at(119)}})
    assert seen_at(world, world.at(90)) == world.at(60), "of a past moment nobody says it"


def seen_at(world: DashboardWorld, at_ms: int) -> int:
    point = state_at(world.opened, datetime.fromtimestamp(at_ms / 1_000, UTC))
    (row,) = read_view(point, "subscriptions", "BILLING").to_pylist()
    return int(row["last_seen_at"].timestamp() * 1_000 + 0.5)


def test_reign_knows_who_polls_and_forgets_who_is_gone() -> None:
    world = World()
    alive, killed = Planner(world, "alive"), Planner(world, "killed")
    alive.next()
    killed.next()
    records = len(world.records())
    world.clock.advance(60_000)
    alive.next()
    heard = heard_of(world.loop.engine.sessions)["WORK"]
    assert (heard["alive"] - heard["killed"], len(world.records())) == (60_000, records), "polls leave no record"
    world.ask(commands.Unsubscribe, queue="WORK", subscription="killed")
    assert heard_of(world.loop.engine.sessions)["WORK"].keys() == {"alive"}


def test_page_tells_idle_from_unknown(world: DashboardWorld) -> None:
    page = "/j/shop/queues/BILLING"
    assert ">idle, or gone<" in asker_of([following(world.journal)]).get(page).text
    tell(world, {"BILLING": {"east": world.at(120)}})
    assert ">idle<" in asker_of([following(world.journal)]).get(page).text
