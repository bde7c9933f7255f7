"""DESIGN 8: a batch that fails again and again is taken apart until the message that fails is alone."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core.lifecycle import State
from spark_queue.testing.scenario.facts import Published
from spark_queue.testing.scenario.world import World
from spark_queue.testing.state_digest import digest

MESSAGES = 1_000
DEFINITIONS = """
[message_types.json]
topics = ["T"]
[queues.Q]
underlying_topic = "T"
max_deliveries = {max_deliveries}
"""


def begin(max_deliveries: int) -> World:
    world = World()
    definitions = tomllib.loads(DEFINITIONS.format(max_deliveries=max_deliveries))
    world.engine.apply(definitions=definitions, reset=(), now_ms=world.now_ms)
    world.publish("json", [Published(topic="T")] * MESSAGES)
    world.commit()
    return world


class FailingQuery:
    """A query on one checkpoint whose fn cannot bear some messages, and which is started again whenever it ends."""

    def __init__(self, world: World, poison: set[int], *, reports: bool, down_ms: int) -> None:
        self._world = world
        self._poison = BitMap64(poison)
        self._reports = reports
        self._down_ms = down_ms
        self._planned = 0
        self._committed = 0
        self.runs = 0

    def start(self) -> bool:
        """Run until fn fails; tells whether the queue was drained instead."""
        engine, now_ms = self._world.engine, self._world.now_ms
        who: dict[str, Any] = {"queue": "Q", "subscription": "s", "incarnation": engine.draw_incarnation(), "now_ms": now_ms}
        engine.attach(**who, call=1, ack_mode="auto", max_backlog=100_000)
        for call in range(2, 1_000_000, 2):
            if self._planned == self._committed:
                lease = engine.next(**who, call=call, finished=self._committed, limit=100_000)
                if lease is None:
                    self._world.commit()
                    return True
                self._planned = lease.number
            _, rows = engine.rows(**who, call=call + 1, lease=self._planned)
            self.runs += 1
            if rows & self._poison:
                return self._fail()
            self._committed = self._planned
            self._world.commit()
        raise AssertionError("it goes on for ever")

    def _fail(self) -> bool:
        engine = self._world.engine
        incarnation, lease, _ = engine.start_run(queue="Q", subscription="s", now_ms=self._world.now_ms)
        if self._reports:
            engine.end_run(
                queue="Q",
                subscription="s",
                incarnation=incarnation,
                lease=lease,
                outcomes=[],
                error="boom",
                now_ms=self._world.now_ms,
            )
        if self._down_ms:
            self._world.clock.advance(self._down_ms)
            engine.tick(now_ms=self._world.now_ms)
        self._world.commit()
        return False


@pytest.mark.parametrize("max_deliveries", [1, 2, 5])
@pytest.mark.parametrize("poison", [{0}, {MESSAGES - 1}, {617}, {3, 4, 700}])
@pytest.mark.parametrize("down_ms", [0, 61_000])
def test_each_poisoned_message_is_one_dead_letter_and_the_rest_acknowledged_when_fn_raises(
    max_deliveries: int, poison: set[int], down_ms: int
) -> None:
    world = begin(max_deliveries)
    query = FailingQuery(world, poison, reports=True, down_ms=down_ms)
    while not query.start():
        assert query.runs < 200
    ledger = world.state.queues["Q"]
    assert set(ledger.rows[State.DEAD]) == poison
    assert len(ledger.rows[State.REMOVED]) == MESSAGES - len(poison)
    assert [(letter.reason, letter.error) for letter in ledger.dead_letters] == [("max_deliveries", "boom")] * len(poison)
    assert all(letter.deliveries <= max_deliveries for letter in ledger.dead_letters)
    assert digest(world.state) == digest(world.folded())


@pytest.mark.parametrize("max_deliveries", [1, 2])
def test_a_poisoned_message_that_kills_its_driver_is_found_too(max_deliveries: int) -> None:
    world = begin(max_deliveries)
    query = FailingQuery(world, {617}, reports=False, down_ms=0)
    while not query.start():
        assert query.runs < 200
    ledger = world.state.queues["Q"]
    assert set(ledger.rows[State.DEAD]) == {617}
    assert len(ledger.rows[State.REMOVED]) == MESSAGES - 1


def test_without_max_deliveries_a_poisoned_message_keeps_its_batch_of_one() -> None:
    world = begin(0)
    query = FailingQuery(world, {617}, reports=True, down_ms=0)
    assert not any(query.start() for _ in range(50))
    ledger = world.state.queues["Q"]
    assert set(ledger.rows[State.LEASED]) == {617}
    assert not ledger.rows[State.DEAD]
