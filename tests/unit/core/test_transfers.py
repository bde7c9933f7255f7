"""Ownership on its way: what is asked for, how often, and what an old log says of it (R104, R105)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.instances import QUEUES, Consumer, Instance, exchange


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
    for each in (frankfurt, virginia, tokyo):
        assert digest(each.world.folded()) == digest(each.world.state)


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
    frankfurt, virginia, tokyo = chain(clock)
    narrow = {**QUEUES, "WORK": {**QUEUES["WORK"], "filter": "kind = 'a'"}}
    frankfurt.define(narrow)
    frankfurt.publish(2)
    exchange(frankfurt, virginia, tokyo)
    assert (frankfurt.rows("available"), tokyo.rows("remote")) == ([], [0, 1])
    waiting = Consumer(tokyo)
    clock.advance(2_000)
    waiting.take(limit=1)
    exchange(frankfurt, virginia, tokyo)
    assert (tokyo.rows("removed"), virginia.rows("removed")) == ([0], [0])
    assert tokyo.world.state.queues["WORK"].removed_counts["purged"] == 1
    asked = tokyo.count("transfer_requested")
    waiting.take()
    exchange(frankfurt, virginia, tokyo)
    clock.advance(60_000)
    waiting.take()
    assert (tokyo.rows("removed"), tokyo.count("transfer_requested")) == ([0, 1], asked + 1), "nothing is left to ask for"
    for each in (frankfurt, virginia, tokyo):
        assert digest(each.world.folded()) == digest(each.world.state)


def ask(of: Instance, rows: dict[str, list[int]], **detail: object) -> None:
    """Let an instance read a request of virginia, as if it had pulled her messages."""
    asked = {"requester": "virginia", "owner": of.name, "passed": [], **detail}
    by_origin = {origin: BitMap64(each) for origin, each in rows.items()}
    news = News(queue="WORK", message_type="json", rows=by_origin, value=None, detail=asked)
    pulled = Pulled(peer="virginia", journal="uuid-of-virginia", record=99, digest="", news=[news])
    of.world.engine.pull(pulled, now_ms=of.world.now_ms)
    of.world.commit()


def test_a_queue_that_keeps_the_order_of_keys_gives_nothing_away(clock: FakeClock) -> None:
    keyed = {"underlying_topic": "T", "ownership": "group_local", "initial_owner": "frankfurt", "order_key": "key"}
    frankfurt = Instance("frankfurt", ["virginia"], clock, queues={"WORK": keyed})
    frankfurt.publish(1)
    ask(frankfurt, {"uuid-of-frankfurt": [0]})
    assert frankfurt.rows("available") == [0]


def test_what_was_left_out_when_it_was_pulled_is_gone_for_who_asks(pair: tuple[Instance, Instance]) -> None:
    frankfurt, _ = pair
    frankfurt.publish(2)
    ask(frankfurt, {"uuid-of-virginia": [7, 8, 20], "uuid-of-frankfurt": [0, 5]}, life=3)
    told = [record.detail for record in frankfurt.world.committed if record.kind == "not_in_queue"]
    assert told == [{"origins": {"uuid-of-virginia": [[7, 9], [20, 21]]}, "life": 3}]


def test_what_may_come_by_another_way_is_not_called_gone(clock: FakeClock) -> None:
    frankfurt = Instance("frankfurt", ["virginia"], clock, passthrough=["sydney"])
    frankfurt.publish(1)
    ask(frankfurt, {"uuid-of-tokyo": [1]})
    ask(frankfurt, {"uuid-of-virginia": [1]}, owner="tokyo")
    assert frankfurt.count("not_in_queue") == 0
    ask(frankfurt, {"uuid-of-virginia": [1]})
    assert frankfurt.count("not_in_queue") == 1
