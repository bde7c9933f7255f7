"""Replication of a queue is switched off for a while, and on again: what was known of its messages stays true."""

from __future__ import annotations

from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import QUEUES, Consumer, Instance, exchange

ALL = ["WORK", "FAILED"]


def expire(instance: Instance, row: int) -> None:
    rows = commands.OutcomeRows(outcome="expire", ranges=((row, row + 1),))
    instance.decide(commands.Settle(queue="WORK", outcomes=(rows,)))


def agree(pair: tuple[Instance, Instance]) -> None:
    """Let both hear everything, and raise unless they say the same of all messages."""
    exchange(*pair)
    for each in pair:
        assert digest(each.world.folded()) == digest(each.world.state)
    one, other = ({each: of.value("WORK", row) for row in range(6) for each in of.ids([row])} for of in pair)
    assert one == other


@pytest.mark.parametrize("everywhere", [False, True])
def test_values_outlive_a_time_without_replication(pair: tuple[Instance, Instance], clock: FakeClock, *, everywhere: bool) -> None:
    """R101: gone, dead, redriven and transferred messages, and what was done with each meanwhile."""
    frankfurt, virginia = pair
    frankfurt.publish(6)
    exchange(*pair)
    waiting = Consumer(virginia)
    clock.advance(2_000)
    waiting.take(limit=1)
    exchange(*pair)
    assert frankfurt.rows("remote") == [0], "it was transferred"
    for row in (1, 2, 3):
        expire(frankfurt, row)
    frankfurt.decide(commands.Redrive(queue="WORK", ranges=((1, 3),)))
    acknowledge = commands.OutcomeRows(outcome="acknowledge", ranges=((2, 3), (4, 5)))
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=(acknowledge,)))
    exchange(*pair)
    for each in pair if everywhere else (frankfurt,):
        each.pull_queues([])
    assert frankfurt.rows("remote") == [0], "it still belongs to the other one"
    virginia.decide(commands.Settle(queue="WORK", outcomes=(commands.OutcomeRows(outcome="acknowledge", ranges=((0, 1),)),)))
    for name, row in (("redriven", 3), ("redriven again", 1)):
        if row == 1:
            expire(frankfurt, row)
        frankfurt.decide(commands.Redrive(queue="WORK", ranges=((row, row + 1),)))
        assert frankfurt.rows("available"), name
    frankfurt.crash()
    for each in pair:
        each.pull_queues(ALL)
    agree(pair)
    assert [frankfurt.value("WORK", row) for row in range(6)] == [
        MessageValue(0, Stage.GONE),
        MessageValue(2, Stage.PRESENT, 0, "frankfurt"),
        MessageValue(1, Stage.GONE),
        MessageValue(1, Stage.PRESENT, 0, "frankfurt"),
        MessageValue(0, Stage.GONE),
        MessageValue(0, Stage.PRESENT, 0, "frankfurt"),
    ]


def test_nobody_is_asked_for_messages_of_a_queue_that_is_pulled_from_nobody(
    pair: tuple[Instance, Instance], clock: FakeClock
) -> None:
    frankfurt, virginia = pair
    frankfurt.publish(1)
    exchange(*pair)
    virginia.pull_queues([])
    clock.advance(60_000)
    Consumer(virginia).take()
    assert (virginia.rows("remote"), virginia.count("transfer_requested")) == ([0], 0)


def test_a_queue_that_becomes_local_takes_all_of_its_messages_and_its_letters(
    pair: tuple[Instance, Instance],
) -> None:
    frankfurt, virginia = pair
    frankfurt.publish(2)
    expire(frankfurt, 1)
    exchange(*pair)
    assert (virginia.rows("remote"), virginia.rows("remote", "FAILED")) == ([0], [1])
    virginia.pull_queues([])
    local: dict[str, dict[str, Any]] = {**QUEUES, "WORK": {**QUEUES["WORK"], "ownership": "local"}}
    virginia.define(local, pulled=[])
    assert (virginia.rows("available"), virginia.rows("available", "FAILED")) == ([0], [1])
    expire(virginia, 0)
    assert virginia.rows("available", "FAILED") == [0, 1]


def test_a_dead_letter_queue_goes_with_its_source(pair: tuple[Instance, Instance]) -> None:
    """A queue takes its dead letters elsewhere while nobody is pulled: they are of the life in which they died."""
    frankfurt, _ = pair
    frankfurt.publish(1)
    expire(frankfurt, 0)
    frankfurt.decide(commands.Redrive(queue="WORK", ranges=((0, 1),)))
    other = {**QUEUES["WORK"], "dead_letter_queue": "OTHER"}
    frankfurt.define({"WORK": other, "OTHER": {"message_type": "json"}}, pulled=[])
    expire(frankfurt, 0)
    assert frankfurt.value("OTHER", 0) == MessageValue(1, Stage.PRESENT, 0, "frankfurt")
