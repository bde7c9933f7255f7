"""What an alarm stops was paused by nobody: neither the log of people's changes nor a page says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands, folds
from spark_queue.core.records import Kind, PauseReason, UnpauseReason
from spark_queue.views.control_rows import record_page
from tests.records import record_of
from tests.unit.dashboard.asking import asker_of, following
from tests.unit.dashboard.dashboard_world import DashboardWorld

QUEUE = "/j/shop/queues/BILLING"
PAUSED = "The queue is paused."


@pytest.fixture
def world(tmp_path: Path) -> DashboardWorld:
    """Return a journal whose one consumer of BILLING was stopped by an alarm."""
    made = DashboardWorld(tmp_path)
    made.attach("BILLING", "east", 1)
    made.publish(4, 2)
    note(made, 3, kind=Kind.PAUSED, reason=PauseReason.ALARM, detail={"error": "the sink is down"})
    made.commit()
    return made


def note(world: DashboardWorld, minute: float, **fields: Any) -> None:
    """Record what a coordinator does by itself."""
    state = world.engine.state
    about: dict[str, Any] = {"queue": "BILLING", "subscription": "east", "epoch": 1, "at_ms": world.at(minute)}
    record = record_of(**about, **fields, record=state.next_record)
    folds.fold(state, record)
    world.engine._pending.append(record)


def people_did(world: DashboardWorld) -> list[tuple[str, str | None, str]]:
    page = record_page(world.opened.record_rows(), queue="BILLING", kind=None, by_people=True, before=None)
    return [(row.kind, row.reason, row.text) for row in page.rows]


def test_an_alarm_is_no_change_by_people(world: DashboardWorld) -> None:
    assert people_did(world) == []
    world.decide(commands.Pause(queue="BILLING"), 4)
    note(world, 5, kind=Kind.UNPAUSED, reason=UnpauseReason.PROBE)
    world.decide(commands.Unpause(queue="BILLING"), 6)
    world.commit()
    assert people_did(world) == [("unpaused", "user", "unpaused"), ("paused", "user", "paused")]


def test_a_page_tells_an_alarm_from_a_pause(world: DashboardWorld) -> None:
    visitor = asker_of([following(world.journal)], allows_changes=True)
    overview, page = visitor.get("/").text, visitor.get(QUEUE).text
    assert ">stopped</span>" in overview
    assert ">paused</span>" not in overview
    assert (PAUSED in page, "<dd>stopped by its alarm</dd>" in page) == (False, True)
    assert ('value="pause"' in page, 'value="unpause"' in page) == (True, True)
    world.decide(commands.Pause(queue="BILLING"), 4)
    world.commit()
    visitor = asker_of([following(world.journal)], allows_changes=True)
    page = visitor.get(QUEUE).text
    assert ">paused</span>" in visitor.get("/").text
    assert (PAUSED in page, "<dd>paused</dd>" in page, 'value="pause"' in page) == (True, True, False)
