"""Messages that their publisher gave to several instances: one message, under whichever name it is told (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.message_files.segment import EntryTraits
from spark_queue.core.records import Transferred
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.ownership import MessageValue, Ownership, Stage
from spark_queue.journal import state_codec
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import Consumer, Instance, exchange

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
