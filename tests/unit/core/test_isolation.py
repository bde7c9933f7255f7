"""DESIGN 8: a batch that fails again and again is taken apart until the message that fails is alone."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from spark_queue.core.lifecycle import State
from spark_queue.core.records import Kind
from spark_queue.testing.scenario import run_scenario
from spark_queue.testing.state_digest import digest
from tests.unit.core.failing_query import FailingQuery, begin

MESSAGES = 1_000


@pytest.mark.parametrize("max_deliveries", [1, 2, 5])
@pytest.mark.parametrize("poison", [{0}, {MESSAGES - 1}, {617}, {3, 4, 700}])
@pytest.mark.parametrize("down_ms", [0, 61_000])
def test_each_poisoned_message_is_one_dead_letter_and_the_rest_acknowledged_when_fn_raises(
    max_deliveries: int, poison: set[int], down_ms: int
) -> None:
    world = begin(MESSAGES, max_deliveries=max_deliveries)
    query = FailingQuery(world, BitMap64(poison).intersect, down_ms=down_ms)
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
    world = begin(MESSAGES, max_deliveries=max_deliveries)
    query = FailingQuery(world, BitMap64([617]).intersect, reports=False)
    while not query.start():
        assert query.runs < 200
    ledger = world.state.queues["Q"]
    assert set(ledger.rows[State.DEAD]) == {617}
    assert len(ledger.rows[State.REMOVED]) == MESSAGES - 1


def test_without_max_deliveries_a_poisoned_message_keeps_its_batch_of_one() -> None:
    world = begin(MESSAGES)
    query = FailingQuery(world, BitMap64([617]).intersect)
    assert not any(query.start() for _ in range(50))
    ledger = world.state.queues["Q"]
    assert set(ledger.rows[State.LEASED]) == {617}
    assert not ledger.rows[State.DEAD]


def test_a_barrier_is_received_once_though_its_batch_was_settled_early_and_proven_later() -> None:
    """A second record would count the next barrier's deliveries anew."""
    scenario = run_scenario(
        """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
  barrier = "kind = close"
publish T 0 kind=close, T 1
planner p1 Q/s1
next p1
rows p1
start p1
end p1 early
next p1 -> lease 2: 1
"""
    )
    received = [record for record in scenario.world.committed if record.kind == Kind.BARRIER_RECEIVED]
    assert [record.ranges for record in received] == [((0, 1),)]


@pytest.mark.parametrize(
    "given_up", ["end p1 failed=boom\nplanner p2 Q/s1\nrows p2", "end p1 failed=boom on_error=cancel\nnext p1"]
)
def test_a_barrier_that_is_given_up_raises_an_alarm_until_the_next_success(given_up: str) -> None:
    """DESIGN 8: it counts as received at max_deliveries, with an alarm that pauses nothing."""
    scenario = run_scenario(
        """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
  max_deliveries = 1
  barrier = "kind = close"
publish T 0 kind=close, T 1..2
planner p1 Q/s1
next p1 limit=1
rows p1
start p1
"""
        + given_up
    )
    ledger = scenario.world.state.queues["Q"]
    assert ledger.alarm is not None
    assert (ledger.alarm.error, ledger.pauses) == ("subscription 's1' gave up barrier 0: boom", set())
    scenario.run("planner p3 Q/s1\nnext p3 limit=1\nnext p3 limit=1\nnext p3 limit=1")
    assert scenario.world.state.queues["Q"].alarm is None
