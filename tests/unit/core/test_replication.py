"""Replicated queues in the core: each message is owned by one instance, and all say the same of it (R101 to R105)."""

from __future__ import annotations

import pytest

from spark_queue.core import commands
from spark_queue.core.state.status import queue_status
from spark_queue.errors import ConfigError
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import QUEUES, Consumer, Instance, exchange, two_instances
from tests.scenario.traits import PublishedMessage


def test_a_message_is_granted_by_its_owner_only(frankfurt: Instance, virginia: Instance) -> None:
    """R101, R102."""
    frankfurt.publish(3)
    virginia.publish(2)
    exchange(frankfurt, virginia)
    assert (frankfurt.rows("available"), frankfurt.rows("remote")) == ([0, 1, 2], [3, 4])
    assert (virginia.rows("available"), virginia.rows("remote")) == ([0, 1], [2, 3, 4])
    assert Consumer(frankfurt).take() == [0, 1, 2]
    assert Consumer(virginia).take() == [0, 1]


def test_what_an_owner_acknowledged_is_gone_everywhere_and_news_that_come_twice_change_nothing(
    frankfurt: Instance, virginia: Instance
) -> None:
    frankfurt.publish(3)
    exchange(frankfurt, virginia)
    Consumer(frankfurt).consume()
    exchange(frankfurt, virginia)
    assert virginia.rows("removed") == [0, 1, 2]
    assert virginia.world.state.queues["WORK"].removed_counts["acknowledged"] == 3
    before = virginia.count("replicated")
    virginia.read_again("frankfurt")
    virginia.pull(frankfurt)
    assert virginia.count("replicated") == before


def test_a_backlog_that_nobody_takes_is_transferred_to_who_asks(frankfurt: Instance, virginia: Instance, clock: FakeClock) -> None:
    """R104, R105."""
    frankfurt.publish(5)
    exchange(frankfurt, virginia)
    waiting = Consumer(virginia)
    assert waiting.take() == []
    assert virginia.ownership().requests == {}, "it has not waited for long enough"
    clock.advance(2_000)
    assert waiting.take(limit=3) == []
    frankfurt.pull(virginia)
    assert frankfurt.rows("remote") == [0, 1, 2]
    virginia.pull(frankfurt)
    assert waiting.take() == [0, 1, 2]
    exchange(frankfurt, virginia)
    assert virginia.ownership().came_from == {"frankfurt": 3}
    assert frankfurt.ownership().given_to == {"virginia": 3}
    for each in (frankfurt, virginia):
        assert digest(each.world.folded()) == digest(each.world.state)


def test_an_owner_keeps_what_its_own_subscription_could_take(frankfurt: Instance, virginia: Instance, clock: FakeClock) -> None:
    """R103, R105."""
    exchange(frankfurt, virginia)
    busy, waiting = Consumer(frankfurt), Consumer(virginia)
    assert busy.take() == []
    frankfurt.publish(5)
    virginia.pull(frankfurt)
    clock.advance(900)
    assert waiting.take() == []
    clock.advance(200)
    assert busy.take(limit=1) == [0]
    assert waiting.take() == []
    frankfurt.pull(virginia)
    assert frankfurt.rows("remote") == []


def test_a_dead_letter_is_redriven_where_its_letter_is_owned(frankfurt: Instance, virginia: Instance) -> None:
    frankfurt.publish(1)
    exchange(frankfurt, virginia)
    Consumer(frankfurt).take()
    frankfurt.settle("expire", 0)
    exchange(frankfurt, virginia)
    assert (virginia.rows("dead"), virginia.rows("remote", "FAILED")) == ([0], [0])
    frankfurt.decide(commands.Redrive(queue="WORK", ranges=((0, 1),)))
    exchange(frankfurt, virginia)
    assert (virginia.rows("remote"), virginia.rows("removed", "FAILED")) == ([0], [0])
    assert frankfurt.rows("available") == [0]


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


def test_a_remote_message_keeps_its_expiration_until_it_comes_here(
    frankfurt: Instance, virginia: Instance, clock: FakeClock
) -> None:
    virginia.world.publish("json", [PublishedMessage(topic="T", expires_at_ms=clock.wall_ms() + 20_000)])
    virginia.world.commit()
    exchange(frankfurt, virginia)
    clock.advance(21_000)
    frankfurt.tick()
    assert frankfurt.rows("remote") == [0], "its owner lets it age out"
    assert digest(frankfurt.world.folded()) == digest(frankfurt.world.state)


def test_what_is_in_no_dead_letter_queue_is_redriven_by_its_owner_alone(clock: FakeClock) -> None:
    frankfurt, virginia = two_instances(clock, queues={"WORK": {"underlying_topic": "T", "lease_period": "60s"}})
    frankfurt.publish(1)
    frankfurt.settle("expire", 0)
    exchange(frankfurt, virginia)
    assert virginia.decide(commands.Redrive(queue="WORK", ranges=((0, 1),))).redriven == 0
    assert frankfurt.decide(commands.Redrive(queue="WORK", ranges=((0, 1),))).redriven == 1
    exchange(frankfurt, virginia)
    assert (frankfurt.rows("available"), virginia.rows("remote")) == ([0], [0])


def test_old_dead_letters_are_removed_by_their_owner_alone(clock: FakeClock) -> None:
    queues = {"WORK": QUEUES["WORK"] | {"dead_letter_retention": "10s"}, "FAILED": QUEUES["FAILED"] | {"lease_period": "60s"}}
    frankfurt, virginia = two_instances(clock, queues=queues)
    frankfurt.publish(1)
    frankfurt.settle("expire", 0)
    exchange(frankfurt, virginia)
    assert Consumer(frankfurt, queue="FAILED").take() == [0]
    clock.advance(11_000)
    virginia.tick()
    assert (virginia.rows("dead"), virginia.rows("remote", "FAILED")) == ([0], [0]), "its owner has it leased"


def test_a_queue_that_begins_to_replicate_knows_whose_its_messages_are(clock: FakeClock) -> None:
    frankfurt, virginia = two_instances(clock, pulled=[])
    frankfurt.publish(3)
    exchange(frankfurt, virginia)
    assert virginia.rows("available") == [0, 1, 2], "so far each delivers what it has by itself"
    consumer = Consumer(frankfurt)
    frankfurt.pull_queues(["WORK", "FAILED"])
    consumer.take(limit=1)
    consumer.take(limit=1)
    exchange(frankfurt, virginia)
    virginia.pull_queues(["WORK", "FAILED"])
    assert virginia.rows("remote") == [0, 1, 2]
    exchange(frankfurt, virginia)
    assert (virginia.rows("removed"), virginia.rows("remote")) == ([0], [1, 2]), "what was said before is read again"
    assert digest(virginia.world.folded()) == digest(virginia.world.state)


def test_a_dead_letter_ages_from_when_it_came_wherever_it_goes(frankfurt: Instance, virginia: Instance, clock: FakeClock) -> None:
    frankfurt.publish(1)
    exchange(frankfurt, virginia)
    clock.advance(60_000)
    frankfurt.settle("expire", 0)
    exchange(frankfurt, virginia)
    waiting = Consumer(virginia, queue="FAILED")
    assert waiting.take() == []
    assert virginia.count("transfer_requested") == 0, "it came just now, whenever its message did"
    clock.advance(2_000)
    assert waiting.take() == []
    exchange(frankfurt, virginia)
    for each, seconds in ((frankfurt, None), (virginia, 2)):
        assert queue_status(each.world.state, "FAILED", now_ms=clock.wall_ms()).seconds_behind == seconds


def test_what_is_redriven_is_not_stuck_behind_what_waits_for_it(clock: FakeClock) -> None:
    owned = {"ownership": "group_local", "initial_owner": "frankfurt"}
    queues = {"WORK": {"underlying_topic": "T", "order_key": "key", "target_queue_depth": 1_000, **owned}}
    frankfurt = Instance("frankfurt", ["virginia"], clock, queues=queues)
    frankfurt.world.publish("json", [PublishedMessage(topic="T", attributes={"key": "a"})] * 1_001)
    frankfurt.settle("expire", 0)
    frankfurt.decide(commands.Redrive(queue="WORK", ranges=((0, 1),)))
    assert Consumer(frankfurt).take(limit=1) == [0]


def test_what_is_redriven_stays_here_where_nobody_pulls_the_queue(clock: FakeClock) -> None:
    """It names an initial owner, and no peer: that one would never hear of the message."""
    queues = {"WORK": {"underlying_topic": "T", "ownership": "group_local", "initial_owner": "virginia"}}
    alone = Instance("frankfurt", [], clock, queues=queues)
    alone.publish(1)
    alone.settle("expire", 0)
    alone.decide(commands.Redrive(queue="WORK", ranges=((0, 1),)))
    assert (alone.rows("available"), alone.rows("remote")) == ([0], [])


def test_a_dead_letter_queue_with_letters_of_others_keeps_its_source(frankfurt: Instance, virginia: Instance) -> None:
    frankfurt.publish(1)
    frankfurt.settle("expire", 0)
    exchange(frankfurt, virginia)
    with pytest.raises(ConfigError, match="would take those of queue 'OTHER'"):
        virginia.define({"OTHER": QUEUES["WORK"], "WORK": {"underlying_topic": "T"}, "FAILED": QUEUES["FAILED"]})


def test_what_was_said_of_an_earlier_queue_of_the_name_is_no_news(frankfurt: Instance, virginia: Instance) -> None:
    """Its bookmarks were those of messages of another type."""
    types = {"json": {"topics": ["T"]}, "other": {"topics": ["O"], "columns": "id BIGINT"}}
    for each in (frankfurt, virginia):
        each._definitions["message_types"] = types
        each.define(QUEUES)
    virginia.publish(1)
    exchange(frankfurt, virginia)
    virginia.define({})
    virginia.define({"WORK": {"underlying_topic": "O"}}, pulled=[])
    virginia.world.publish("other", [PublishedMessage(topic="O")])
    virginia.world.commit()
    virginia.settle("acknowledge", 0)
    virginia.define({})
    virginia.define(QUEUES)
    exchange(frankfurt, virginia)
    assert virginia.rows("available") == frankfurt.rows("remote") == [0]


def test_a_letter_that_died_in_its_queue_ends_with_an_acknowledgement_elsewhere(frankfurt: Instance, virginia: Instance) -> None:
    """R107: virginia was working on the message when frankfurt claimed it, and gave it up."""
    virginia.publish(1)
    exchange(frankfurt, virginia)
    working = Consumer(virginia)
    assert working.take() == [0]
    frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=True))
    frankfurt.miss(31_000)
    for queue in ("WORK", "FAILED"):
        frankfurt.settle("expire", 0, queue=queue)
    assert (frankfurt.rows("dead"), frankfurt.rows("dead", "FAILED")) == ([0], [0])
    assert working.take() == []
    exchange(frankfurt, virginia)
    for each in (frankfurt, virginia):
        assert (each.rows("removed"), each.rows("dead", "FAILED")) == ([0], []), each.name
