"""A loop that was stopped for a while and wakes up with calls in its hand: what became due meanwhile comes before them."""

from __future__ import annotations

from typing import Any

from spark_queue.core import commands, replies
from spark_queue.core.records import Kind, Removal
from tests.unit.coordinator.loop_world import DEFINITIONS, PERIOD_MS, Planner, World

HOUR_MS = 3_600_000


def world_with(**settings: Any) -> World:
    return World({**DEFINITIONS, "queues": {"WORK": {**DEFINITIONS["queues"]["WORK"], **settings}}}, ends_idle=False)


def test_what_grew_too_old_meanwhile_is_not_granted() -> None:
    """R51; what is leased stays until its holder was heard (P5)."""
    world = world_with(expiration="1h")
    planner = Planner(world)
    world.publish(3)
    planner.next(limit=1)
    world.clock.advance(HOUR_MS)
    call = planner.next_call()
    world.loop.step([call])
    assert isinstance(call.reply, replies.Granted)
    assert call.reply.messages == 0
    removed = [(record.reason, tuple(record.ranges)) for record in world.records() if record.kind == Kind.REMOVED]
    assert removed == [(Removal.TIME_LIMIT, ((1, 3),)), (Removal.ACKNOWLEDGED, ((0, 1),))]


def test_a_dead_letter_past_its_retention_is_not_redriven() -> None:
    """R13: purged letters are gone."""
    world = world_with(max_deliveries=1, dead_letter_retention="1h")
    planner = Planner(world)
    world.publish(1)
    planner.next()
    world.clock.advance(PERIOD_MS)
    world.loop.step([])
    world.clock.advance(HOUR_MS)
    reply = world.ask(commands.Redrive, queue="WORK", ranges=((0, 1),))
    assert reply == replies.Redriven(requested=1, redriven=0, skipped=1)
