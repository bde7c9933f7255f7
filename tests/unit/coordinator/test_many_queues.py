"""What is done for one queue does not follow how many others there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from spark_queue.coordinator import alarm_bell
from spark_queue.coordinator.loop import ROUND_MS
from spark_queue.core import commands, engine
from spark_queue.core.deciding import timers
from spark_queue.core.deciding.agenda import LOOKED_OVER
from tests.unit.coordinator.loop_world import DEFINITIONS, Planner, World

QUEUES = 3 * LOOKED_OVER


def of_many(**more: Any) -> dict[str, Any]:
    others = {f"Q{number}": {"underlying_topic": "OTHERS", **more} for number in range(QUEUES)}
    types = {"json": {"topics": ["ORDERS"]}, "others": {"columns": "id BIGINT", "topics": ["OTHERS"]}}
    return {"message_types": types, "queues": {**DEFINITIONS["queues"], **others}}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is done once for each queue that is looked at."""
    counts: Counter[str] = Counter()

    def count(place: Any, name: str) -> None:
        does: Callable[..., Any] = getattr(place, name)

        def counting(*given: Any, **named: Any) -> Any:
            counts[name] += 1
            return does(*given, **named)

        monkeypatch.setattr(place, name, counting)

    for name in ("next_due_ms", "purge_old"):
        count(timers, name)
    count(engine, "UnitOfWork")
    count(alarm_bell, "alarms")
    return counts


def test_a_poll_and_what_follows_it_look_at_its_own_queue_alone(counted: Counter[str]) -> None:
    world = World(of_many())
    planner = Planner(world)
    world.publish(100)
    world.clock.advance(ROUND_MS)
    world.loop.step([])
    counted.clear()
    for _ in range(10):
        assert planner.next(limit=5).messages == 5
        world.loop.wait_ms()
    assert max(counted.values()) < 10 * 10
    assert counted["next_due_ms"] >= 10


def test_a_round_looks_over_some_of_the_queues_and_over_all_of_them_in_turns(counted: Counter[str]) -> None:
    world = World(of_many(subscription_retention="10m"))
    for number in (0, QUEUES - 1):
        Planner(world, queue=f"Q{number}")
    world.clock.advance(600_001)
    for _ in range(QUEUES // LOOKED_OVER + 1):
        counted.clear()
        world.clock.advance(ROUND_MS)
        world.loop.step([])
        assert counted["UnitOfWork"] < 3 * LOOKED_OVER
    # Silence is no time that anybody waits for: it is found when the turn comes.
    assert world.kinds().count("unsubscribed") == 2


def test_new_definitions_are_looked_at_once_for_each_queue(counted: Counter[str]) -> None:
    world = World(of_many())
    counted.clear()
    world.ask(commands.Apply, definitions=of_many(lease_period="30s"))
    world.loop.wait_ms()
    assert max(counted.values()) < 3 * QUEUES
