"""DESIGN 8, 15.12: one poisoned row among 100,000 is one dead letter; a sink that is down makes none, and an alarm."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from pyroaring import BitMap64

from spark_queue.core.lifecycle import State
from spark_queue.core.records import Kind
from spark_queue.testing.scenario.world import World
from spark_queue.testing.state_digest import digest
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
    query = FailingQuery(world, BitMap64([poison]).intersect, cancels=cancels)
    drain(world, query, starts=200)
    assert dead(world) == [poison]
    assert world.state.queues["Q"].removed_counts == {"acknowledged": 99_999, "max_deliveries": 1}
    assert query.runs < 120
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
    ledger = world.state.queues["Q"]
    assert ledger.removed_counts == {"acknowledged": 980}
    assert ledger.alarm is not None
    assert "each alone" in ledger.alarm.error


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
