"""Ownership on its way: what is asked for, how often, and what an old log says of it (R104, R105)."""

from __future__ import annotations

from spark_queue.core import commands
from tests.fake_clock import FakeClock
from tests.instances import Consumer, Instance, exchange


def test_a_log_that_is_read_again_takes_nothing_back(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    frankfurt, virginia = pair
    frankfurt.publish(1)
    exchange(*pair)
    there = Consumer(virginia)
    clock.advance(2_000)
    there.take()
    exchange(*pair)
    assert there.take() == [0]
    virginia.decide(commands.Settle(queue="WORK", outcomes=(commands.OutcomeRows(outcome="cancel", ranges=((0, 1),), lease=1),)))
    virginia.decide(commands.Unsubscribe(queue="WORK", subscription="s"))
    exchange(*pair)
    here = Consumer(frankfurt)
    clock.advance(10_000)
    here.take()
    exchange(*pair)
    assert frankfurt.rows("available") == [0], "it came back by a second transfer"
    before = frankfurt.count("replicated")
    frankfurt.read_again("virginia")
    frankfurt.pull(virginia)
    assert (frankfurt.rows("available"), frankfurt.count("replicated")) == ([0], before)


def test_one_request_is_open_until_it_is_answered_or_over(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R104."""
    frankfurt, virginia = pair
    frankfurt.publish(3)
    exchange(*pair)
    waiting = Consumer(virginia)
    clock.advance(2_000)
    for _ in range(3):
        waiting.take(limit=1)
        clock.advance(1_000)
    assert virginia.count("transfer_requested") == 1
    clock.advance(3_000)
    waiting.take(limit=1)
    assert virginia.count("transfer_requested") == 2
