"""Random lives of several instances of one queue: each message is in one pair of hands in the world, and all say the same."""

from __future__ import annotations

import random
from itertools import combinations

from spark_queue.core import commands
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import Value
from spark_queue.verification import invariants
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.instances import Consumer, Instance, exchange
from tests.simulation.seeds import over_seeds

STEPS = 120

#: A message everywhere: the UUID of its origin, and its bookmark there.
Id = tuple[str, int]


class World:
    """Several instances, and what was delivered to whom."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        names = ["frankfurt", "virginia", "tokyo"][: self.random.choice([2, 2, 3])]
        self.instances = [Instance(name, [each for each in names if each != name], self.clock) for name in names]
        self.consumers = {each.name: [Consumer(each, "one"), Consumer(each, "two")] for each in self.instances}

    def step(self) -> None:
        """Let something happen somewhere."""
        instance = self.random.choice(self.instances)
        match self.random.choices(["publish", "take", "pull", "time", "expire", "redrive", "crash"], [3, 8, 10, 4, 2, 2, 1])[0]:
            case "publish":
                instance.publish(self.random.randint(1, 4))
            case "take":
                self._take(instance)
            case "pull":
                instance.pull(self.random.choice([each for each in self.instances if each is not instance]))
            case "time":
                self.clock.advance(self.random.choice([300, 1_500, 6_000, 30_000, 61_000]))
                instance.tick()
            case "expire":
                self._settle(instance, "expire")
            case "redrive":
                self._redrive(instance)
            case "crash":
                instance.crash()
        self.check()

    def _take(self, instance: Instance) -> None:
        consumer = self.random.choice(self.consumers[instance.name])
        for row in consumer.take(limit=self.random.randint(1, 5)):
            own, (each,) = instance.value("WORK", row), instance.ids([row])
            assert own.owner == instance.name, "who delivers a message owns it"
            for other in self.instances:
                there = other.own_row(each)
                assert there is None or other.value("WORK", there) <= own, (
                    f"{other.name} knows more of what {instance.name} delivers"
                )

    def _settle(self, instance: Instance, outcome: str) -> None:
        leased = instance.world.state.queues["WORK"].rows[State.LEASED]
        if leased:
            row = self.random.choice(list(leased))
            rows = commands.OutcomeRows(outcome=outcome, ranges=((row, row + 1),))
            instance.decide(commands.Settle(queue="WORK", outcomes=(rows,)))

    def _redrive(self, instance: Instance) -> None:
        dead = instance.decide(commands.FindDeadLetters(queue="WORK", where=None))
        if dead.ranges:
            instance.decide(commands.Redrive(queue="WORK", ranges=dead.ranges))

    def check(self) -> None:
        """Raise unless each message is leased by one instance at most, and every instance is sound."""
        held = [instance.ids(list(instance.world.state.queues["WORK"].rows[State.LEASED])) for instance in self.instances]
        for one, other in combinations(held, 2):
            assert not one & other, "two instances have a message leased"
        for instance in self.instances:
            assert invariants.of_state(instance.world.state) == []


def values(instance: Instance, queue: str) -> dict[Id, Value]:
    """Return what an instance says of each message of a queue."""
    ledger = instance.world.state.queues[queue]
    return {each: value for row in ledger.entered for each in instance.ids([row]) for value in [instance.value(queue, row)]}


@over_seeds(every=10)
def test_instances_come_to_say_the_same(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    exchange(*world.instances)
    first, *others = world.instances
    for other in others:
        for queue in ("WORK", "FAILED"):
            assert values(first, queue) == values(other, queue)
    for instance in world.instances:
        assert digest(instance.world.folded()) == digest(instance.world.state)
        assert not set(instance.rows("remote")) & set(instance.rows("leased"))
