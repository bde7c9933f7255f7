"""A loop that was stopped for a while and wakes up with calls in its hand: what became due meanwhile comes before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.core.records import Kind, Removal
from spark_queue.protocol import wire
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


class Sleeping:
    """An inbox of a process that is stopped while it waits; then nobody has called yet, since all others slept, too."""

    def __init__(self, world: World, slept_ms: int, calls: Sequence[Call]) -> None:
        self._world = world
        self._naps = [slept_ms, PERIOD_MS // 3 - 1]
        self._calls = list(calls)

    def take(self, timeout_s: float) -> list[Call]:
        if len(self._naps) == 2:
            self._world.clock.advance(round(timeout_s * 1000) + self._naps.pop(0))
            return []
        if self._naps:
            self._world.clock.advance(self._naps.pop())
            return [self._calls.pop(0)]
        return [self._calls.pop(0)]


@pytest.mark.parametrize("slept_ms", [PERIOD_MS, 3 * PERIOD_MS])
def test_a_process_that_slept_hears_living_holders_before_it_ends_their_leases(slept_ms: int) -> None:
    """R15: who could not be heard has not been silent; as at a take-over, a third of a period is given."""
    world = world_with()
    planner = Planner(world)
    world.publish(3)
    planner.next(limit=1)
    before = len(world.records())
    renewal = world.call(commands.Renew, lease=planner.lease, **planner.planner())
    world.loop._inbox = Sleeping(world, slept_ms, [renewal, world.call(wire.Stop)])  # type: ignore[assignment]  # All that it asks.
    world.loop.run()
    assert isinstance(renewal.reply, replies.Renewed)
    assert world.kinds(before) == [Kind.RENEWED, Kind.RENEWED]
    world.clock.advance(PERIOD_MS)
    world.loop.step([])
    assert world.kinds(before)[2:] == [Kind.RETURNED], "who is silent now, is"
