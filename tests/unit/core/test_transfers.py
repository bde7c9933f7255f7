"""Ownership on its way: what is asked for, how often, and what a log says of it that is read again (R104, R105)."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances import transfers
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.core.state.status import queue_status
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.records import detail_of
from tests.scenario.instances import OF_FRANKFURT, QUEUES, Consumer, Instance, ask, exchange
from tests.scenario.traits import PublishedMessage


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


def test_an_idle_instance_gets_messages_of_an_owner_that_is_busy(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R104, R105: its own consumer has the oldest; it gives the oldest of the others, and no more than are wanted."""
    frankfurt, virginia = pair
    frankfurt.publish(100)
    exchange(*pair)
    busy, idle = Consumer(frankfurt, max_backlog=10), Consumer(virginia)
    for first in (10, 30, 50):
        leased = busy.take()
        assert len(leased) == 10
        clock.advance(2_000)
        assert idle.take(limit=10) == []
        exchange(*pair)
        assert len(frankfurt.rows("remote")) == 10, "as many as it has room for"
        assert idle.take(limit=10) == list(range(first, first + 10))
        clock.advance(2_000)
        exchange(*pair)
    assert virginia.count("transfer_requested") == 3
    agree(*pair)


def test_what_came_back_for_later_is_given_away_once_it_is_due(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R105: nobody of its owner may ever consume again."""
    frankfurt, virginia = pair
    frankfurt.publish(1)
    exchange(*pair)
    assert Consumer(frankfurt).take() == [0]
    cancel = commands.OutcomeRows(outcome="cancel", ranges=((0, 1),), retry_after_ms=20_000)
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=(cancel,)))
    idle = Consumer(virginia)
    clock.advance(19_000)
    idle.take()
    exchange(*pair)
    assert frankfurt.rows("delayed") == [0], "whoever failed on it asked for this time"
    clock.advance(6_000)
    frankfurt.tick()
    idle.take()
    exchange(*pair)
    assert (frankfurt.rows("remote"), idle.take()) == ([0], [0])
    assert frankfurt.world.state.queues["WORK"].delayed == {}
    agree(*pair)


def test_what_comes_to_an_end_meanwhile_is_no_answer(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R104: a request is open until something of it comes."""
    frankfurt, virginia = pair
    frankfurt.publish(30)
    exchange(*pair)
    busy, idle = Consumer(frankfurt), Consumer(virginia)
    clock.advance(2_000)
    for _ in range(3):
        busy.take(limit=10)
        exchange(frankfurt, virginia)
        idle.take(limit=5)
        clock.advance(500)
    assert virginia.count("transfer_requested") == 1
    busy.take()
    exchange(*pair)
    frankfurt.publish(1)
    exchange(*pair)
    clock.advance(3_000)
    idle.take()
    assert virginia.count("transfer_requested") == 2, "nothing is left of the one before"


def test_a_request_that_comes_by_two_ways_is_answered_once(clock: FakeClock) -> None:
    """R105: also where who passes it on has heard of the answer."""
    names = ["frankfurt", "virginia", "tokyo"]
    frankfurt, virginia, tokyo = (Instance(name, [each for each in names if each != name], clock) for name in names)
    frankfurt.publish(9)
    exchange(frankfurt, virginia, tokyo)
    waiting = Consumer(virginia)
    clock.advance(2_000)
    waiting.take(limit=2)
    tokyo.pull(virginia)
    frankfurt.pull(virginia)
    frankfurt.pull(tokyo)
    assert (tokyo.count("transfer_requested"), frankfurt.rows("remote")) == (1, [0, 1])
    exchange(frankfurt, virginia, tokyo)
    assert waiting.take() == [0, 1]
    assert waiting.take(limit=2) == []
    frankfurt.pull(virginia)
    tokyo.pull(frankfurt)
    tokyo.pull(virginia)
    frankfurt.pull(tokyo)
    assert (tokyo.count("transfer_requested"), frankfurt.rows("remote")) == (1, [2, 3])
    exchange(frankfurt, virginia, tokyo)
    agree(frankfurt, virginia, tokyo)


def test_who_hears_of_the_answer_passes_the_next_request_on(clock: FakeClock) -> None:
    """R104: however soon it comes."""
    frankfurt, virginia, tokyo = chain(clock)
    frankfurt.publish(9)
    exchange(frankfurt, virginia, tokyo)
    waiting = Consumer(tokyo)
    clock.advance(2_000)
    for first in (0, 2, 4):
        assert waiting.take(limit=2) == []
        exchange(frankfurt, virginia, tokyo)
        assert waiting.take() == [first, first + 1]
    agree(frankfurt, virginia, tokyo)


def test_what_one_request_cannot_name_is_in_the_next(
    pair: tuple[Instance, Instance], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R104: behind what was asked for in vain, and then from the beginning."""
    monkeypatch.setattr(transfers, "NAMED_MOST", 4)
    frankfurt, virginia = pair
    frankfurt.publish(10)
    exchange(*pair)
    busy, idle = Consumer(frankfurt), Consumer(virginia)
    assert len(busy.take(limit=9)) == 9
    for _ in range(3):
        clock.advance(5_000)
        idle.take(limit=1)
        exchange(*pair)
    asked = [list(to_bitmap(each.ranges)) for each in virginia.world.committed if each.kind == "transfer_requested"]
    assert asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert idle.take() == [9]
    clock.advance(5_000)
    idle.take()
    assert virginia.ownership().requests["frankfurt"].rows == BitMap64([0, 1, 2, 3])


def agree(*instances: Instance) -> None:
    """Raise unless each log says what its instance knows."""
    for each in instances:
        assert digest(each.world.folded()) == digest(each.world.state)


def chain(clock: FakeClock) -> tuple[Instance, Instance, Instance]:
    """Make three instances of which the first and the last know each other by the one between."""
    peers = {"frankfurt": ["virginia"], "virginia": ["frankfurt", "tokyo"], "tokyo": ["virginia"]}
    frankfurt, virginia, tokyo = (Instance(name, each, clock) for name, each in peers.items())
    return frankfurt, virginia, tokyo


def test_a_request_travels_over_an_instance_between(clock: FakeClock) -> None:
    """R104, R105."""
    frankfurt, virginia, tokyo = chain(clock)
    frankfurt.publish(3)
    exchange(frankfurt, virginia, tokyo)
    waiting = Consumer(tokyo)
    clock.advance(2_000)
    waiting.take(limit=2)
    virginia.pull(tokyo)
    assert virginia.count("transfer_requested") == 1
    frankfurt.pull(virginia)
    assert frankfurt.rows("remote") == [0, 1]
    virginia.pull(frankfurt)
    assert virginia.value("WORK", 0) == MessageValue(0, Stage.PRESENT, 1, "tokyo")
    tokyo.pull(virginia)
    assert waiting.take() == [0, 1]
    agree(frankfurt, virginia, tokyo)


def test_a_request_does_not_go_in_circles(clock: FakeClock) -> None:
    names = ["frankfurt", "virginia", "tokyo", "sydney"]
    frankfurt, *others = (Instance(name, [each for each in names if each != name], clock) for name in names)
    frankfurt.publish(1)
    exchange(frankfurt, *others)
    frankfurt.decide(commands.Pause(queue="WORK"))
    waiting = Consumer(others[0])
    clock.advance(2_000)
    waiting.take()
    exchange(frankfurt, *others)
    assert [each.count("transfer_requested") for each in (frankfurt, *others)] == [0, 1, 1, 1]
    clock.advance(5_000)
    waiting.take()
    exchange(frankfurt, *others)
    assert [each.count("transfer_requested") for each in (frankfurt, *others)] == [0, 2, 2, 2], "it is asked again"


def test_a_paused_owner_grants_nothing_and_passes_on_what_others_own(clock: FakeClock) -> None:
    frankfurt, virginia, tokyo = chain(clock)
    frankfurt.publish(1)
    virginia.publish(1)
    exchange(frankfurt, virginia, tokyo)
    virginia.decide(commands.Pause(queue="WORK"))
    waiting = Consumer(tokyo)
    clock.advance(2_000)
    waiting.take()
    exchange(frankfurt, virginia, tokyo)
    taken = waiting.take()
    assert tokyo.ids(taken) == {("uuid-of-frankfurt", 0)}


def test_what_never_came_into_the_owners_queue_is_gone_for_who_asks(clock: FakeClock) -> None:
    """R105: also where an instance stands between, and whatever life it is in there."""
    frankfurt = Instance("frankfurt", ["virginia"], clock, queues={})
    virginia, tokyo = (
        Instance(name, peers, clock, queues=OF_FRANKFURT)
        for name, peers in (("virginia", ["frankfurt", "tokyo"]), ("tokyo", ["virginia"]))
    )
    virginia.publish(2)
    frankfurt.pull(virginia)
    frankfurt.begin_late(OF_FRANKFURT)
    exchange(frankfurt, virginia, tokyo)
    assert (frankfurt.rows("available"), tokyo.rows("remote")) == ([], [0, 1])
    waiting = Consumer(tokyo)
    clock.advance(2_000)
    waiting.take(limit=1)
    exchange(frankfurt, virginia, tokyo)
    assert (tokyo.rows("removed"), virginia.rows("removed")) == ([0, 1], [0, 1])
    assert tokyo.world.state.queues["WORK"].removed_counts["purged"] == 2
    clock.advance(60_000)
    waiting.take()
    assert tokyo.count("transfer_requested") == 1, "nothing is left to ask for"
    agree(frankfurt, virginia, tokyo)


def test_a_queue_that_keeps_the_order_of_keys_gives_nothing_away(clock: FakeClock) -> None:
    keyed = {"underlying_topic": "T", "ownership": "group_local", "initial_owner": "frankfurt", "order_key": "key"}
    frankfurt = Instance("frankfurt", ["virginia"], clock, queues={"WORK": keyed})
    frankfurt.publish(1)
    ask(frankfurt, {"uuid-of-frankfurt": [0]})
    assert frankfurt.rows("available") == [0]
    frankfurt.define({"WORK": {**keyed, "barrier": "kind = 'b'"}})
    frankfurt.world.publish("json", [PublishedMessage(topic="T", attributes={"kind": kind}) for kind in "ba"])
    frankfurt.world.commit()
    ask(frankfurt, {"uuid-of-frankfurt": [0, 2]}, requester="amsterdam")
    assert frankfurt.rows("available") == [0, 2], "its barrier waits for what is its own"


def test_what_a_barrier_holds_up_goes_to_whom_it_does_not(pair: tuple[Instance, Instance]) -> None:
    """R103: nobody here can take it, and two owners may have each other's messages behind barriers, in different orders."""
    frankfurt, _ = pair
    frankfurt.define({**QUEUES, "WORK": {**QUEUES["WORK"], "barrier": "kind = 'b'"}})
    frankfurt.world.publish("json", [PublishedMessage(topic="T", attributes={"kind": kind}) for kind in "aaba"])
    frankfurt.world.commit()
    first, second = Consumer(frankfurt), Consumer(frankfurt, "waits", max_backlog=1)
    assert first.take(limit=1) == [0]
    assert second.take(limit=1) == [1]
    assert first.take(limit=1) == [], "it waits behind the barrier"
    ask(frankfurt, {"uuid-of-frankfurt": [0, 1, 3]})
    assert frankfurt.rows("remote") == [3]


def test_what_was_left_out_when_it_was_pulled_is_gone_for_who_asks(pair: tuple[Instance, Instance]) -> None:
    frankfurt, _ = pair
    frankfurt.publish(2)
    ask(frankfurt, {"uuid-of-virginia": [7, 8, 20], "uuid-of-frankfurt": [0, 5]}, life=3)
    told = [detail_of(record) for record in frankfurt.world.committed if record.kind == "not_in_queue"]
    assert told == [{"origins": {"uuid-of-virginia": [[7, 9], [20, 21]]}, "life": 3}]


def test_an_owner_says_again_what_has_ended_to_who_goes_on_asking(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R105: virginia missed it, and would ask for ever; of what was redriven meanwhile nothing is said."""
    frankfurt, virginia = pair
    frankfurt.publish(3)
    virginia.pull(frankfurt)
    consumer = Consumer(frankfurt)
    assert consumer.take(limit=2) == [0, 1]
    assert consumer.take(limit=1) == [2]
    for seconds, count in ((0, 0), (4, 0), (1, 1), (1, 1), (4, 2)):
        clock.advance(1_000 * seconds)
        ask(frankfurt, {"uuid-of-frankfurt": [0, 1, 2]})
        assert frankfurt.count("not_in_queue") == count
    clock.advance(5_000)
    ask(frankfurt, {"uuid-of-frankfurt": [0, 1, 2]}, life=1)
    assert frankfurt.count("not_in_queue") == 2
    virginia._read["frankfurt"] = max(
        number for number, record in enumerate(frankfurt.world.committed) if record.kind == "not_in_queue"
    )
    virginia.pull(frankfurt)
    assert (virginia.rows("removed"), virginia.rows("remote")) == ([0, 1], [2])


def test_the_figures_tell_how_long_messages_of_others_wait_and_were_asked_for(
    pair: tuple[Instance, Instance], clock: FakeClock
) -> None:
    """R119; a request that is repeated stays as old as its first, and ends once something of it comes."""
    frankfurt, virginia = pair

    def ages() -> tuple[float | None, float | None]:
        found = queue_status(virginia.world.state, "WORK", now_ms=clock.wall_ms())
        return found.age_of_oldest_remote, found.age_of_oldest_request

    assert ages() == (None, None)
    frankfurt.publish(3)
    virginia.pull(frankfurt)
    waiting = Consumer(virginia)
    for seconds, expected in ((0, (0.0, None)), (1, (1.0, 0.0)), (6, (7.0, 6.0)), (6, (13.0, 12.0))):
        clock.advance(1_000 * seconds)
        assert waiting.take(limit=2) == []
        assert ages() == expected
    exchange(*pair)
    assert ages() == (13.0, None)
    clock.advance(6_000)
    assert waiting.take(limit=2) == [0, 1]
    assert waiting.take(limit=2) == []
    assert ages() == (19.0, 0.0)


def test_what_may_come_by_another_way_is_not_called_gone(clock: FakeClock) -> None:
    frankfurt = Instance("frankfurt", ["virginia"], clock, passthrough=["sydney"])
    frankfurt.publish(1)
    ask(frankfurt, {"uuid-of-tokyo": [1]})
    ask(frankfurt, {"uuid-of-virginia": [1]}, owner="tokyo")
    assert frankfurt.count("not_in_queue") == 0
    ask(frankfurt, {"uuid-of-virginia": [1]})
    assert frankfurt.count("not_in_queue") == 1
