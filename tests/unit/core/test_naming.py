"""Messages that their publisher gave to several instances: one message, under whichever name it is told (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.message_files.segment import EntryTraits
from spark_queue.core.records import Kind, Transferred
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.ownership import MessageValue, Ownership, Stage
from spark_queue.core.state.status import alarms
from spark_queue.journal import state_codec
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import QUEUES, Consumer, Instance, exchange

F, V, T = "frankfurt", "virginia", "tokyo"


def instances(*names: str) -> list[Instance]:
    clock = FakeClock()
    return [Instance(name, [each for each in names if each != name], clock) for name in names]


def settle(instance: Instance, row: int, outcome: str = "acknowledge", queue: str = "WORK") -> None:
    rows = commands.OutcomeRows(outcome=outcome, ranges=((row, row + 1),))
    instance.decide(commands.Settle(queue=queue, outcomes=(rows,)))


def test_a_message_of_two_instances_is_one_row_with_two_names_and_belongs_to_the_greater_owner() -> None:
    one, two = instances(F, V)
    one.publish_as("app", [1, 2, 3])
    two.publish_as("app", [2, 3, 4])
    exchange(one, two)
    assert one.world.state.message_types["json"].entered_until == two.world.state.message_types["json"].entered_until == 4
    assert one.ids([1]) == two.ids([0]) == {("uuid-of-frankfurt", 1), ("uuid-of-virginia", 0)}
    assert [one.value("WORK", row).owner for row in range(4)] == [F, V, V, V]
    assert one.rows("remote") == [1, 2, 3]
    assert two.rows("remote") == [3], "what only frankfurt has"
    assert digest(one.world.folded()) == digest(one.world.state)
    assert digest(state_codec.decode(state_codec.encode(one.world.state))) == digest(one.world.state)


def test_a_queue_that_becomes_replicated_gives_a_message_of_two_instances_to_the_greater_owner() -> None:
    """R129: of what nobody has said anything, whoever published it owns it first."""
    one, two = instances(F, V)
    one.publish_as("app", [1, 2])
    two.publish_as("app", [2])
    exchange(one, two)
    state = one.world.state
    state.message_types["json"].told.clear()
    ledger = QueueLedger(state.queues["WORK"].definition, start=0)
    ledger.ownership = Ownership(F)
    ledger.enter(EntryTraits(rows=BitMap64([0, 1])))
    state.give_to_first_owners(ledger, BitMap64([0, 1]))
    assert {owner: list(rows) for _, owner, rows in ledger.ownership.by_owner(BitMap64([0, 1]))} == {F: [0], V: [1]}


def test_a_publisher_that_resumes_with_old_numbers_repeats_nothing() -> None:
    one, two = instances(F, V)
    one.publish_as("app", range(1, 6))
    exchange(one, two)
    assert two.publish_as("app", range(3, 8)) == [6, 7]
    exchange(one, two)
    assert one.publish_as("app", range(5, 9)) == [8]
    exchange(one, two)
    for each in (one, two):
        assert len(each.world.state.queues["WORK"].entered) == 8
        assert each.count(Kind.NAMED) == 0, "nothing was published to both"


def test_an_owner_that_knows_one_name_only_gives_the_message_away() -> None:
    """R105: in a chain, frankfurt asks for what both ends published; tokyo has never heard of its name there."""
    clock = FakeClock()
    one, between, other = (Instance(name, peers, clock) for name, peers in ((F, [V]), (V, [F, T]), (T, [V])))
    one.publish_as("app", [1])
    other.publish_as("app", [1])
    for puller, peer in ((between, other), (between, one), (one, between), (other, between)):
        puller.pull(peer)
    assert (len(one.ids([0])), len(other.ids([0]))) == (2, 1)
    waiting = Consumer(one)
    waiting.take()
    clock.advance(60_000)
    waiting.take()
    exchange(one, between, other)
    assert other.count("not_in_queue") == 0
    assert waiting.take() == [0]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_third_instances_end_with_the_same_whatever_they_hear_first(order: tuple[int, ...]) -> None:
    of_all = instances(F, V, T)
    for each in of_all:
        each.publish_as("app", [1, 2])
    consumer = Consumer(of_all[0])
    assert consumer.take(limit=1) == [0]
    consumer.take(limit=0)
    for puller in order:
        for peer in order:
            if puller != peer:
                of_all[puller].pull(of_all[peer])
    exchange(*of_all)
    for each in of_all:
        assert each.value("WORK", 0) == MessageValue(stage=Stage.GONE)
        assert each.value("WORK", 1) == MessageValue(owner=V), "the greatest of three"
        assert each.ids([0]) == {(f"uuid-of-{name}", 0) for name in (F, V, T)}


def test_news_reach_an_instance_that_knows_another_name_only() -> None:
    """Frankfurt and Tokyo read Virginia alone; what one of them did comes to the other by the name that it knows."""
    clock = FakeClock()
    one, two, three = Instance(F, [V], clock), Instance(V, [F, T], clock), Instance(T, [V], clock)
    one.publish_as("app", [1])
    three.publish_as("app", [1])
    two.pull(one)
    two.pull(three)
    consumer = Consumer(three)
    assert consumer.take() == [0]
    consumer.take()
    two.pull(three)
    one.pull(two)
    assert one.ids([0]) == {("uuid-of-frankfurt", 0)}
    assert one.rows("removed") == [0]


def died(instance: Instance) -> None:
    Consumer(instance).take()
    settle(instance, 0, "expire")


def redriven(instance: Instance) -> None:
    died(instance)
    instance.decide(commands.Redrive(queue="WORK", ranges=((0, 1),)))


def transferred(instance: Instance) -> None:
    body = Transferred(term=5, owner=V, deliveries=1)
    instance.world.engine._emit(instance.world.now_ms)(body, queue="WORK", ranges=((0, 1),))
    instance.world.commit()


@pytest.mark.parametrize("learns_first", [F, T])
@pytest.mark.parametrize(
    ("what", "value"),
    [
        (died, MessageValue(0, Stage.DEAD, 0, F)),
        (redriven, MessageValue(1, Stage.PRESENT, 0, F)),
        (transferred, MessageValue(0, Stage.PRESENT, 5, V)),
    ],
)
def test_what_happened_before_the_second_name_is_known_stands(
    what: Callable[[Instance], None], value: MessageValue, learns_first: str
) -> None:
    one, two, three = instances(F, V, T)
    one.publish_as("app", [1])
    three.publish_as("app", [1])
    what(one)
    (one if learns_first == F else three).pull(three if learns_first == F else one)
    exchange(one, two, three)
    assert [each.value("WORK", 0) for each in (one, two, three)] == [value] * 3
    letters = [each.rows("remote", "FAILED") + each.rows("available", "FAILED") for each in (one, two, three)]
    assert letters == [[0] if what is died else []] * 3


def test_leases_that_are_open_on_both_sides_stay_open_and_count() -> None:
    """Two instances may deliver a message that was published to both before each had pulled the other, and no more."""
    one, two = instances(F, V)
    one.publish_as("app", [1, 2])
    two.publish_as("app", [1, 2])
    on_one, on_two = Consumer(one), Consumer(two)
    assert on_one.take(limit=1) == on_two.take(limit=1) == [0]
    exchange(one, two)
    assert one.rows("leased") == two.rows("leased") == [0]
    assert on_one.take(limit=1) == [], "the other one is Virginia's"
    assert two.value("WORK", 0) == MessageValue(owner=V)
    exchange(one, two)
    assert two.rows("leased") == [], "what Frankfurt acknowledged is gone"
    assert one.rows("removed") == two.rows("removed") == [0]
    assert on_two.take(limit=1) == [1]


def test_a_queue_that_is_pulled_later_gives_a_message_of_two_to_the_greater() -> None:
    clock = FakeClock()
    one, two = Instance(F, [V], clock, pulled=[]), Instance(V, [F], clock)
    one.publish_as("app", [1])
    two.publish_as("app", [1])
    exchange(one, two)
    one.pull_queues(["WORK", "FAILED"])
    exchange(one, two)
    assert one.value("WORK", 0) == two.value("WORK", 0) == MessageValue(owner=V)
    assert one.rows("remote") == [0]


def test_a_message_of_two_belongs_to_the_initial_owner_where_there_is_one() -> None:
    clock = FakeClock()
    queues = {name: {**queue, "ownership": "group_local", "initial_owner": F} for name, queue in QUEUES.items()}
    one, two = (Instance(name, [other], clock, queues=queues) for name, other in ((F, V), (V, F)))
    one.publish_as("app", [1])
    two.publish_as("app", [1])
    exchange(one, two)
    assert one.value("WORK", 0) == two.value("WORK", 0) == MessageValue(owner=F)
    assert sum(each.count(Kind.REPLICATED) for each in (one, two)) == 0


def test_a_name_is_learned_once() -> None:
    one, two = instances(F, V)
    one.publish_as("app", [1, 2])
    two.publish_as("app", [1, 2])
    exchange(one, two)
    one.read_again(V)
    exchange(one, two)
    assert one.count(Kind.NAMED) == 1
    one.crash()
    assert one.ids([0]) == two.ids([0])


def test_one_number_with_two_contents_enters_twice_and_is_an_alarm() -> None:
    one, two = instances(F, V)
    one.publish_as("app", [1, 2], body="this")
    two.publish_as("app", [2, 3], body="that")
    exchange(one, two)
    for each in (one, two):
        assert len(each.world.state.queues["WORK"].entered) == 4
        assert each.count(Kind.NAMED) == 0
        ((_, alarm),) = alarms(each.world.state, each.world.state.queues["WORK"]).items()
        assert "PUBLISHER_CLASH" in alarm.error
        assert "'app' gave number 2" in alarm.error
    assert digest(one.world.folded()) == digest(one.world.state)
    one.decide(commands.Purge(queue="WORK", where=None))
    two.decide(commands.Purge(queue="WORK", where=None))
    exchange(one, two)
    assert alarms(one.world.state, one.world.state.queues["WORK"]) == {}, "none of them is in the queue any more"
