"""How long an instance waits for messages of others before it asks for them (R104)."""

from __future__ import annotations

from spark_queue.core import commands
from tests.fake_clock import FakeClock
from tests.scenario.instances import Consumer, Instance, exchange


def asks_after(instance: Instance, waiting: Consumer, clock: FakeClock) -> int:
    """Return how long messages that came just now are waited for, in milliseconds."""
    before, began_ms = instance.count("transfer_requested"), clock.wall_ms()
    while instance.count("transfer_requested") == before:
        clock.advance(100)
        assert waiting.take() == []
    return clock.wall_ms() - began_ms


def acknowledge(instance: Instance, row: int) -> None:
    rows = commands.OutcomeRows(outcome="acknowledge", ranges=((row, row + 1),))
    instance.decide(commands.Settle(queue="WORK", outcomes=(rows,)))


def test_messages_are_waited_for_about_as_long_as_they_take(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R104: two pull intervals at first, then a mean over the news of ends, of which no single one counts much."""
    frankfurt, virginia = pair
    frankfurt.publish(1)
    exchange(*pair)
    waiting = Consumer(virginia)
    assert asks_after(virginia, waiting, clock) == 1_000
    clock.advance(2_000)
    acknowledge(frankfurt, 0)
    exchange(*pair)
    frankfurt.publish(1)
    exchange(*pair)
    assert asks_after(virginia, waiting, clock) == 3_000, "as long as the one before took"
    clock.advance(8_000)
    acknowledge(frankfurt, 1)
    exchange(*pair)
    frankfurt.publish(1)
    exchange(*pair)
    assert asks_after(virginia, waiting, clock) == 4_000, "the mean of 3 s and 11 s, of which the newest counts an eighth"


def test_nobody_waits_longer_than_transfer_after(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R104: what takes long in a backlog should be taken from it."""
    frankfurt, virginia = pair
    frankfurt.publish(1)
    exchange(*pair)
    clock.advance(3_600_000)
    acknowledge(frankfurt, 0)
    exchange(*pair)
    frankfurt.publish(1)
    exchange(*pair)
    assert asks_after(virginia, Consumer(virginia), clock) == 10_000


def test_every_owner_has_a_time_of_its_own_and_a_reign_learns_it_anew(clock: FakeClock) -> None:
    names = ["frankfurt", "virginia", "tokyo"]
    frankfurt, virginia, tokyo = (Instance(name, [each for each in names if each != name], clock) for name in names)
    frankfurt.publish(1)
    exchange(frankfurt, virginia, tokyo)
    clock.advance(5_000)
    acknowledge(frankfurt, 0)
    exchange(frankfurt, virginia, tokyo)
    tokyo.publish(1)
    exchange(frankfurt, virginia, tokyo)
    waiting = Consumer(virginia)
    assert asks_after(virginia, waiting, clock) == 1_000
    exchange(frankfurt, virginia, tokyo)
    waiting.take()
    frankfurt.publish(1)
    exchange(frankfurt, virginia, tokyo)
    virginia.crash()
    assert asks_after(virginia, Consumer(virginia, "another"), clock) == 1_000


def test_the_end_of_a_dead_letter_is_measured_from_when_it_came(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    frankfurt, virginia = pair
    frankfurt.publish(2)
    for row in (0, 1):
        clock.advance(60_000)
        dies = commands.OutcomeRows(outcome="expire", ranges=((row, row + 1),))
        frankfurt.decide(commands.Settle(queue="WORK", outcomes=(dies,)))
        exchange(*pair)
        waiting = Consumer(virginia, queue="FAILED")
        if row == 1:
            assert asks_after(virginia, waiting, clock) == 4_000
        clock.advance(4_000)
        gone = commands.OutcomeRows(outcome="acknowledge", ranges=((row, row + 1),))
        frankfurt.decide(commands.Settle(queue="FAILED", outcomes=(gone,)))
        exchange(*pair)
