"""Why a message that waits in a queue is given to nobody (`explain`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.records import Outcome
from tests.deciding import started
from tests.unit.dashboard.dashboard_world import DashboardWorld


@pytest.fixture
def world(tmp_path: Path) -> DashboardWorld:
    made = DashboardWorld(tmp_path)
    made.publish(10, 1)
    return made


def why(world: DashboardWorld, bookmark: int, queue: str = "BILLING") -> str | None:
    world.commit()
    told = world.journal.queue(queue).explain(bookmark)
    assert told.reason is None or told.reason in str(told)
    return told.reason


def test_nobody_consumes(world: DashboardWorld) -> None:
    assert "nobody consumes queue 'BILLING' now" in str(why(world, 3))
    world.attach("BILLING", "east", 2)
    world.decide(commands.Leave(**_planner(world)), 3)
    assert "nobody consumes queue 'BILLING' now" in str(why(world, 3))


def test_the_queue_is_paused(world: DashboardWorld) -> None:
    world.attach("BILLING", "east", 2)
    world.decide(commands.Pause(queue="BILLING"), 3)
    assert "queue 'BILLING' is paused, and grants nothing until `sparkq unpause`." in str(why(world, 3))
    world.decide(commands.Unpause(queue="BILLING"), 4)
    assert "paused" not in str(why(world, 3))


def test_no_filter_matches(world: DashboardWorld) -> None:
    started(world.engine, "BILLING", "large", max_backlog=5, filter_sql="amount > 6", now_ms=world.at(2))
    assert "no subscription's filter matches it. 'large': amount > 6" in str(why(world, 3))
    assert "8 older ones are available" in str(why(world, 8))


def test_consumers_have_as_much_in_hand_as_they_may(world: DashboardWorld) -> None:
    world.attach("BILLING", "east", 2, backlog=4)
    world.work("BILLING", 4, 2.1)
    assert why(world, 0) is None, "it is leased"
    assert "each consumer has as much in hand as it may: 'east' has 4 in hand" in str(why(world, 7))


def test_it_is_not_its_turn(world: DashboardWorld) -> None:
    world.attach("BILLING", "east", 2)
    world.work("BILLING", 4, 2.1)
    told = str(why(world, 7))
    assert "waits for its turn: 3 older ones are available. Who may take it was last heard: 'east' " in told


def test_it_was_cancelled_with_a_delay(world: DashboardWorld) -> None:
    world.attach("BILLING", "east", 2)
    world.work("BILLING", 4, 179.9)
    cancelled = commands.OutcomeRows(outcome=Outcome.CANCEL, ranges=((1, 2),), retry_after_ms=3_600_000)
    world.decide(commands.Settle(queue="BILLING", outcomes=(cancelled,)), 179.95)
    assert "it was cancelled with a delay" in str(why(world, 1))


def test_what_left_waits_for_nothing(world: DashboardWorld) -> None:
    world.expire("SHIPPING", range(5, 6), "no such address", 2)
    assert why(world, 5, "SHIPPING") is None


def _planner(world: DashboardWorld) -> dict[str, Any]:
    return world._planners["BILLING"]
