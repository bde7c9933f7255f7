"""View dead_letters: what left a queue for good, from before and after it had a dead-letter queue (DESIGN 15.11)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.records import Outcome
from spark_queue.views import queue_status, read_view
from tests.unit.views.views_world import DEFINITIONS, START_MS, ViewsWorld


@pytest.fixture
def world(tmp_path: Path) -> ViewsWorld:
    return ViewsWorld(tmp_path)


def letters(world: ViewsWorld, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_view(world.moment(), "dead_letters", queue).to_pylist()
    return found


def test_dead_letters_carry_reason_error_and_counts_until_they_are_settled(world: ViewsWorld) -> None:
    world.publish(10, 11, 12)
    world.attach()
    world.next(3)
    world.settle(Outcome.EXPIRE, 0, 2, error="no price")
    for queue in ("WORK", "FAILED"):
        found = letters(world, queue)
        assert [(row["bookmark"], row["amount"], row["state"], row["reason"], row["error"]) for row in found] == [
            (0, 10, "dead", "forced_expire", "no price"),
            (2, 12, "dead", "forced_expire", "no price"),
        ]
        assert found[0]["delivery_count"] == 1
        assert found[0]["removed_at"] == datetime.fromtimestamp(START_MS / 1_000, UTC)
    assert letters(world, "OTHER") == []


def test_dead_letters_from_before_there_was_a_dead_letter_queue_are_still_seen(world: ViewsWorld) -> None:
    before = {"queues": {"WORK": {"underlying_topic": "LINES"}}}
    world.engine.decide(commands.Apply(definitions={**DEFINITIONS, **before}), now_ms=START_MS)
    world.publish(10, 11)
    world.attach()
    world.next(1)
    world.settle(Outcome.EXPIRE, 0)
    world.engine.decide(commands.Apply(definitions=DEFINITIONS), now_ms=START_MS)
    world.next(1)
    world.settle(Outcome.EXPIRE, 1)
    for queue, bookmarks in (("WORK", [0, 1]), ("FAILED", [1])):
        assert [row["bookmark"] for row in letters(world, queue)] == bookmarks
        assert queue_status(world.moment(), queue).dead_letters == len(bookmarks)
