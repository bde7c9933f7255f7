"""Replicated queues in the core, where retention lets messages go that another instance has ended (R101 to R105)."""

from __future__ import annotations

from spark_queue.core import commands
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import Consumer, exchange, two_instances


def test_what_another_instance_ended_is_folded_again_after_retention_let_it_go(clock: FakeClock) -> None:
    frankfurt, virginia = two_instances(clock, journal={"retention": "60s"})
    virginia.publish(3)
    exchange(frankfurt, virginia)
    waiting = Consumer(frankfurt)
    Consumer(frankfurt, "filtered", filter_sql="x < 3", max_backlog=10)
    clock.advance(2_000)
    waiting.take(limit=1)
    exchange(frankfurt, virginia)
    waiting.consume()
    virginia.decide(commands.Purge(queue="WORK"))
    exchange(frankfurt, virginia)
    clock.advance(120_000)
    frankfurt.world.engine.liveness.pulled_here = {"virginia": frankfurt.world.state.next_record}
    frankfurt.tick()
    assert frankfurt.world.state.message_types["json"].retired_rows == 3
    assert digest(frankfurt.world.folded()) == digest(frankfurt.world.state)
