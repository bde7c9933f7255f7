"""DESIGN 8: a batch that fails again and again is taken apart until the message that fails is alone."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from spark_queue.core.records import Kind
from spark_queue.core.state.findings import alarms
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.status import queue_status
from spark_queue.verification.state_digest import digest
from tests.scenario import run_scenario
from tests.unit.core.failing_query import FailingQuery, begin

MESSAGES = 1_000


@pytest.mark.parametrize("max_deliveries", [1, 2, 5])
@pytest.mark.parametrize("poison", [{0}, {MESSAGES - 1}, {617}, {3, 4, 700}])
@pytest.mark.parametrize("down_ms", [0, 61_000])
def test_each_poisoned_message_is_one_dead_letter_and_the_rest_acknowledged_when_fn_raises(
    max_deliveries: int, poison: set[int], down_ms: int
) -> None:
    world = begin(MESSAGES, max_deliveries=max_deliveries)
    query = FailingQuery(world, BitMap64(poison).intersect, down_ms=down_ms, batch_ms=1_000)
    ledger = world.state.queues["Q"]
    while ledger.depth:
        query.start()
        assert query.runs < 200
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


@pytest.mark.parametrize("cancels", [False, True], ids=["fail", "cancel"])
def test_without_limits_poisoned_messages_hold_nobody_back_and_are_tried_later_each_time(*, cancels: bool) -> None:
    """DESIGN 15.12: 1 s, 2 s, 4 s and so on, 5 minutes at most; a try of its own does not count as a batch of the others."""
    world, poison = begin(MESSAGES), {3, 4, 617, 700}
    query = FailingQuery(world, BitMap64(poison).intersect, cancels=cancels, batch_ms=100, down_ms=100)
    ledger = world.state.queues["Q"]
    while len(ledger.rows[State.REMOVED]) < MESSAGES - len(poison):
        query.start()
        # Ten pieces find one message, and some say whether the sink is to blame.
        assert query.runs < 4 * 15
    runs, query.batch_ms, query.down_ms = query.runs, 1_000, 1_000
    for _ in range(3_600):
        query.start()
    assert set(ledger.rows[State.AVAILABLE]) | set(ledger.rows[State.DELAYED]) == poison
    # In an hour: up to 256 s nine tries each, then one in five minutes; a query that ends repeats its batch, which is empty.
    assert query.runs - runs < len(poison) * (9 + 12) * (1 if cancels else 2)
    assert max(due_at_ms for due_at_ms in ledger.delayed) - world.now_ms > 100_000
    assert queue_status(world.state, "Q", now_ms=world.now_ms).alarm == (
        "4 messages failed alone more than 5 times, first bookmark 3. The last error: boom"
    )
    assert digest(world.state) == digest(world.folded())


def test_batches_fit_to_how_many_messages_fail() -> None:
    """100,000 messages in one batch, of which 100 fail: the search for each does not begin with all of them again."""
    world = begin(100_000, max_deliveries=1)
    poison = BitMap64(range(617, 100_000, 1_000))
    sizes: list[int] = []

    def fails(rows: BitMap64) -> bool:
        sizes.append(len(rows))
        return poison.intersect(rows)

    query = FailingQuery(world, fails, cancels=True, batch_ms=1_000)
    query.start()
    ledger = world.state.queues["Q"]
    assert ledger.rows[State.DEAD] == poison
    assert len(ledger.rows[State.REMOVED]) == 100_000 - len(poison)
    assert len(sizes) < 100 * 15
    # Every message was in about ten batches, and not in a hundred.
    assert sum(sizes) < 100_000 * 15


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
    (alarm,) = alarms(scenario.world.state, ledger).values()
    assert (alarm.text, alarm.pauses) == ("subscription 's1' gave up barrier 0: boom", False)
    scenario.run("planner p3 Q/s1\nnext p3 limit=1\nnext p3 limit=1\nnext p3 limit=1")
    assert alarms(scenario.world.state, ledger) == {}
