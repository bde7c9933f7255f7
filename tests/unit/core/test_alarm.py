"""DESIGN 8, 15.12: one poisoned row among 100,000 is one dead letter; a sink that is down makes none, and an alarm."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from pyroaring import BitMap64

from spark_queue.core.records import Kind
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.status import queue_status
from spark_queue.verification.state_digest import digest
from tests.scenario import run_scenario
from tests.scenario.world import World
from tests.unit.core.failing_query import FailingQuery, begin

MODES = pytest.mark.parametrize("cancels", [False, True], ids=["fail", "cancel"])


def drain(world: World, query: FailingQuery, *, starts: int) -> None:
    """Start the query as often as it takes, `starts` times at most."""
    for _ in range(starts):
        query.start()
        if not world.state.queues["Q"].depth:
            return
    raise AssertionError(f"{world.state.queues['Q'].depth} messages are left after {query.runs} runs")


def dead(world: World) -> Iterable[int]:
    return list(world.state.queues["Q"].rows[State.DEAD])


@MODES
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("poison", [0, 61_803, 99_999])
def test_one_poisoned_row_among_100_000_is_one_dead_letter_and_the_rest_is_acknowledged(
    poison: int, limit: int, *, cancels: bool
) -> None:
    world = begin(100_000, max_deliveries=limit)
    query = FailingQuery(world, BitMap64([poison]).intersect, cancels=cancels, batch_ms=1_000, down_ms=1_000)
    drain(world, query, starts=200)
    assert dead(world) == [poison]
    assert world.state.queues["Q"].removed_counts == {"acknowledged": 99_999, "max_deliveries": 1}
    # Seventeen pieces, each of a batch of its own, and the tries alone.
    assert query.runs < 30
    assert not any(record.kind == Kind.PAUSED for record in world.committed)


@MODES
@pytest.mark.parametrize("poison", [range(20), range(50, 70), range(0, 1_000, 97)])
def test_a_run_of_poisoned_rows_ends_as_dead_letters_and_holds_nobody_back(poison: range, *, cancels: bool) -> None:
    world = begin(1_000, max_deliveries=2)
    query = FailingQuery(world, BitMap64(poison).intersect, cancels=cancels, batch_ms=1_000, down_ms=1_000)
    drain(world, query, starts=3_000)
    assert set(dead(world)) == set(poison)
    assert digest(world.state) == digest(world.folded())


@MODES
def test_where_nothing_else_is_left_poisoned_rows_look_like_a_sink_that_is_down(*, cancels: bool) -> None:
    world = begin(1_000, max_deliveries=2)
    query = FailingQuery(world, BitMap64(range(980, 1_000)).intersect, cancels=cancels, batch_ms=1_000, down_ms=1_000)
    with pytest.raises(AssertionError, match="20 messages are left"):
        drain(world, query, starts=500)
    assert world.state.queues["Q"].removed_counts == {"acknowledged": 980}
    status = queue_status(world.state, "Q", now_ms=world.now_ms)
    assert status.paused
    assert status.alarm == "subscription 's': 3 messages failed in a row, each alone. The last error: boom"


@MODES
@pytest.mark.parametrize("messages", [4, 100_000])
def test_a_sink_that_is_down_for_ten_minutes_makes_no_dead_letter_but_an_alarm(messages: int, *, cancels: bool) -> None:
    world = begin(messages, max_deliveries=2, max_cancels=2)
    up_at_ms = world.now_ms + 600_000
    query = FailingQuery(world, lambda rows: bool(rows) and world.now_ms < up_at_ms, cancels=cancels, batch_ms=1_000, down_ms=5_000)
    drain(world, query, starts=1_000)
    assert dead(world) == []
    assert world.state.queues["Q"].removed_counts == {"acknowledged": messages}
    assert [(record.kind, record.reason) for record in world.committed if record.kind in (Kind.PAUSED, Kind.UNPAUSED)] == [
        ("paused", "alarm"),
        ("unpaused", "probe"),
    ]
    # The alarm does not stand in the way for longer than one probe.
    assert world.now_ms < up_at_ms + 60_000
    assert digest(world.state) == digest(world.folded())


def test_one_of_two_subscriptions_has_a_dead_sink_and_its_messages_live() -> None:
    """The other's success says nothing about them: DESIGN 15.12 counts for each subscription."""
    scenario = run_scenario(
        """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
  max_deliveries = 3
publish T 0..19 price=0
planner a Q/a filter="price = 0"
planner b Q/b filter="price = 1"
"""
    )
    for turn in range(40):
        scenario.run(f"""
publish T {20 + turn} price=1
tick 1s
next a limit=9
next b limit=9
start b
end b
""")
        if scenario.world.state.queues["Q"].leases[scenario.world.checkpoints["Q", "a"]].leased:
            scenario.run("start a\nend a failed=down on_error=cancel")
    status = queue_status(scenario.world.state, "Q", now_ms=scenario.world.now_ms)
    assert (status.dead_letters, status.acknowledged, status.paused) == (0, 39, False)
    assert status.alarm == "subscription 'a': 3 messages failed in a row, each alone. The last error: down"
