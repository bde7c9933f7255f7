"""Requests for messages of several lives, of several owners, and together with claims (R104, R105, R109)."""

from __future__ import annotations

from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.verification.of_state import of_state
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import OF_FRANKFURT, QUEUES, Consumer, Instance, exchange
from tests.scenario.traits import PublishedMessage

LOST_MS = 31_000

NAMES = ("frankfurt", "virginia", "tokyo")

Three = tuple[Instance, Instance, Instance]


def three(clock: FakeClock, queues: dict[str, dict[str, Any]] = QUEUES) -> Three:
    """Make three instances that pull from each other."""
    frankfurt, virginia, tokyo = (Instance(name, [each for each in NAMES if each != name], clock, queues=queues) for name in NAMES)
    return frankfurt, virginia, tokyo


def publish(instance: Instance, *kinds: str) -> None:
    """Publish a message of each kind."""
    instance.world.publish("json", [PublishedMessage(topic="T", attributes={"kind": kind}) for kind in kinds])
    instance.world.commit()


def redrive(instance: Instance, row: int) -> None:
    """Let a leased message die by hand, and give it back: it is in its next life."""
    instance.decide(commands.Settle(queue="WORK", outcomes=(commands.OutcomeRows(outcome="expire", ranges=((row, row + 1),)),)))
    assert instance.decide(commands.Redrive(queue="WORK", ranges=((row, row + 1),))).redriven == 1


def claimer(instance: Instance) -> Consumer:
    """Let an instance claim what frankfurt leaves, and return a consumer that has waited for it."""
    for queue in ("WORK", "FAILED"):
        instance.decide(commands.ProxiedTransfer(queue=queue, on=True, owner="frankfurt"))
    consumer = Consumer(instance, "claimer")
    assert consumer.take(limit=1) == []
    instance.miss(LOST_MS)
    return consumer


def late_owner(clock: FakeClock) -> Three:
    """Make three instances with two messages that frankfurt owns: the first never was in its queue, the second is."""
    frankfurt = Instance("frankfurt", ["virginia", "tokyo"], clock, queues={})
    virginia = Instance("virginia", ["frankfurt", "tokyo"], clock, queues=OF_FRANKFURT)
    tokyo = Instance("tokyo", ["frankfurt", "virginia"], clock, queues=OF_FRANKFURT)
    virginia.publish(1)
    exchange(frankfurt, virginia, tokyo)
    frankfurt.begin_late(OF_FRANKFURT)
    frankfurt.publish(1)
    return frankfurt, virginia, tokyo


def test_what_never_was_in_the_owners_queue_ends_in_no_later_life_than_it_is_in(clock: FakeClock) -> None:
    """R105: a request also names a message that was redriven; what another has claimed and redriven stays."""
    frankfurt, virginia, tokyo = late_owner(clock)
    Consumer(frankfurt).take()
    redrive(frankfurt, 1)
    exchange(frankfurt, virginia, tokyo)
    assert claimer(tokyo).take(limit=1) == [0]
    redrive(tokyo, 0)
    waiting = Consumer(virginia)
    waiting.take()
    assert virginia.ownership().requests["frankfurt"].rows == virginia.world.state.queues["WORK"].entered
    frankfurt.pull(virginia)
    assert frankfurt.count("not_in_queue") == 1
    exchange(frankfurt, virginia, tokyo)
    assert [each.value("WORK", 0) for each in (virginia, tokyo)] == [MessageValue(1, Stage.PRESENT, 0, "frankfurt")] * 2


def test_what_is_in_a_later_life_is_asked_for_alone_once_all_was_asked_for_in_vain(clock: FakeClock) -> None:
    """R105: so it is called gone, too, though its owner keeps what stands in an earlier life."""
    frankfurt, virginia, tokyo = late_owner(clock)
    exchange(frankfurt, virginia, tokyo)
    assert claimer(tokyo).take(limit=1) == [0]
    redrive(tokyo, 0)
    tokyo.decide(commands.ProxiedTransfer(queue="WORK", on=False))
    exchange(frankfurt, virginia, tokyo)
    assert virginia.value("WORK", 0) == MessageValue(1, Stage.PRESENT, 0, "frankfurt")
    Consumer(frankfurt).take()
    waiting = Consumer(virginia)
    asked = []
    clock.advance(OPEN_MS)
    for _ in range(3):
        waiting.take()
        asked.append(list(virginia.ownership().requests["frankfurt"].rows))
        exchange(frankfurt, virginia, tokyo)
        clock.advance(OPEN_MS)
    assert asked == [[0, 1], [0], [1]]
    assert virginia.value("WORK", 0) == tokyo.value("WORK", 0) == MessageValue(1, Stage.GONE)


@pytest.mark.parametrize("comes_back", [False, True])
def test_who_owns_a_part_of_what_is_asked_for_gives_it_and_then_the_rest(clock: FakeClock, *, comes_back: bool) -> None:
    """R105, R109: each in its life, and the lost owner agrees when it comes back."""
    of_all = frankfurt, virginia, tokyo = three(clock)
    frankfurt.publish(4)
    lost = Consumer(frankfurt)
    assert lost.take(limit=3) == [0, 1, 2]
    redrive(frankfurt, 2)
    exchange(*of_all)
    taking = claimer(tokyo)
    assert taking.take(limit=1) == [0]
    redrive(tokyo, 0)
    tokyo.decide(commands.Unsubscribe(queue="WORK", subscription="claimer"))
    waiting = Consumer(virginia)
    waiting.take()
    assert list(virginia.ownership().requests["frankfurt"].rows) == [0, 1, 2, 3]
    tokyo.pull(virginia)
    virginia.pull(tokyo)
    assert waiting.take() == [0]
    tokyo.look()
    clock.advance(OPEN_MS)
    assert waiting.take() == []
    tokyo.pull(virginia)
    virginia.pull(tokyo)
    values = [virginia.value("WORK", row) for row in range(4)]
    assert values == [MessageValue(1, Stage.GONE), *(MessageValue(life, Stage.PRESENT, 2, "virginia") for life in (0, 1, 0))]
    assert waiting.take() == [1, 2, 3]
    if comes_back:
        exchange(*of_all)
        assert [frankfurt.value("WORK", row) for row in range(4)] == values, "by both"
    for each in of_all:
        assert digest(each.world.folded()) == digest(each.world.state)
        assert of_state(each.world.state) == []


def limits(instance: Instance) -> dict[str, int]:
    """Return how many messages an instance asks of each owner now."""
    return {owner: request.limit for owner, request in instance.ownership().requests.items()}


def waiting_among(clock: FakeClock, counts: dict[str, int]) -> tuple[Three, Consumer]:
    """Let two of three instances own messages that the third waits for."""
    of_all = three(clock)
    for each in of_all:
        if each.name in counts:
            each.publish(counts[each.name])
    exchange(*of_all)
    clock.advance(2_000)
    return of_all, Consumer(of_all[1], max_backlog=100)


@pytest.mark.parametrize(
    ("counts", "room", "asked"),
    [
        ({"frankfurt": 20, "tokyo": 20}, 8, {"frankfurt": 4, "tokyo": 4}),
        ({"frankfurt": 20, "tokyo": 20}, 9, {"frankfurt": 4, "tokyo": 5}),
        ({"frankfurt": 20, "tokyo": 1}, 8, {"frankfurt": 7, "tokyo": 1}),
        ({"frankfurt": 20, "tokyo": 20}, 1, {"frankfurt": 1, "tokyo": 1}),
        ({"frankfurt": 20}, 8, {"frankfurt": 8}),
    ],
)
def test_who_asks_several_owners_asks_all_of_them_together_for_no_more_than_it_has_room_for(
    clock: FakeClock, counts: dict[str, int], room: int, asked: dict[str, int]
) -> None:
    """R104: or for one of each, where it has less room than there are owners."""
    of_all, idle = waiting_among(clock, counts)
    assert idle.take(limit=room) == []
    assert limits(of_all[1]) == asked
    exchange(*of_all)
    given = idle.take(limit=100)
    assert len(given) == sum(asked.values())


def test_an_owner_that_has_all_leased_keeps_nobody_from_what_others_have(clock: FakeClock) -> None:
    """R104: its share is asked for in vain; the shares of others are not."""
    of_all, idle = waiting_among(clock, {"frankfurt": 20, "tokyo": 20})
    frankfurt, virginia, _ = of_all
    busy = Consumer(frankfurt)
    assert len(busy.take()) == 20
    received = 0
    for _ in range(5):
        assert idle.take(limit=8) == []
        exchange(*of_all)
        given = idle.take(limit=8)
        assert virginia.ids(given) <= {("uuid-of-tokyo", row) for row in range(20)}
        received += len(given)
        clock.advance(1_000)
    assert received == 20, "four each time, though eight of others are asked for"


def test_who_is_asked_for_all_that_there_is_room_for_leaves_others_their_share(clock: FakeClock) -> None:
    """R104: they came to own messages later; then all are asked anew, together for no more than there is room for."""
    of_all, idle = waiting_among(clock, {"frankfurt": 20})
    frankfurt, virginia, tokyo = of_all
    Consumer(frankfurt).take()
    idle.take(limit=8)
    tokyo.publish(20)
    exchange(*of_all)
    clock.advance(2_000)
    idle.take(limit=8)
    assert limits(virginia) == {"frankfurt": 8, "tokyo": 4}
    clock.advance(OPEN_MS)
    idle.take(limit=8)
    assert limits(virginia) == {"frankfurt": 4, "tokyo": 4}
