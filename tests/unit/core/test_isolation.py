"""DESIGN 8: a batch that fails again and again is taken apart until the message that fails is alone."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from spark_queue.core.lifecycle import State
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
