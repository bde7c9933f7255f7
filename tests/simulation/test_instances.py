"""Random lives of several instances of one queue: each message is in one pair of hands in the world, and all say the same."""

from __future__ import annotations

import random

from spark_queue.core import commands, folds
from spark_queue.core.deciding.instances.liveness import GAP_MS
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.verification.instances import of_origins, of_what_was_pulled
from spark_queue.verification.of_state import of_state
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import QUEUES, Consumer, Instance, exchange
from tests.scenario.traits import PublishedMessage
from tests.simulation.application import Application, number_of
from tests.simulation.seeds import over_seeds

#: Steps of a life; each sixth one is longer.
STEPS, LONG_STEPS = 60, 120

#: Worlds that once failed, long ones: a message that died under a lease after another instance had claimed it.
KEPT_SEEDS = (372, 702)

#: A message everywhere: the UUID of its origin, and its bookmark there.
Id = tuple[str, int]

#: A message under whichever name: its publisher's number, or its only name.
Message = int | Id


class World:
    """Several instances, and what was delivered to whom.

    In a chain the first and the last know each other by the one between, and each stops and begins again to replicate.
    """

    def __init__(
        self, seed: int, *, claims: bool = False, chain: bool = False, fails_over: bool = False, alters: bool = False
    ) -> None:
        self.random = random.Random(seed)
        #: Whether somebody gives one instance other definitions now and then.
        self.alters = alters
        self.steps = STEPS if seed % 6 else LONG_STEPS
        self.claims = claims
        self.chain = chain
        #: Pairs of instances that cannot read each other now.
        self.cuts: set[frozenset[str]] = set()
        self.clock = FakeClock()
        names = ["frankfurt", "virginia", "tokyo"][: 3 if chain else self.random.choice([2, 2, 3])]
        apart = {"frankfurt", "tokyo"} if chain else set[str]()
        peers = {name: [each for each in names if each != name and {each, name} != apart] for name in names}
        self.instances = [Instance(name, peers[name], self.clock) for name in names]
        #: Publishes under a name to one instance after the other; None where nobody does.
        self.application = Application(self.instances, self.random) if fails_over else None
        #: Messages of which everybody knew all names when nobody but their owner had them leased.
        self.settled: set[Message] = set()
        self.consumers = {each.name: [Consumer(each, "one"), Consumer(each, "two")] for each in self.instances}

    def _allow_claims(self, instance: Instance) -> None:
        """Let an instance claim from whomever it knows; at the end of a chain it hears of the other end later."""
        for queue in ("WORK", "FAILED"):
            owned = instance.ownership(queue)
            for owner in sorted({*instance.world.state.definitions.peers, *owned.others()} - owned.claims_from):
                instance.decide(commands.ProxiedTransfer(queue=queue, on=True, owner=owner))

    def live(self) -> None:
        """Let one thing happen after the other."""
        for _ in range(self.steps):
            self.step()

    def step(self) -> None:
        """Let something happen somewhere."""
        instance = self.random.choice(self.instances)
        weights = {"publish": 3, "take": 8, "pull": 10, "time": 4, "expire": 2, "redrive": 2, "crash": 1, "cut": 2 * self.claims}
        weights |= {"switch": 2 * self.chain, "define": 3 * self.alters}
        if self.application is not None:
            weights |= {"application": 8, "pull": 4, "merge": 1, "dies": 1, "level": 1}
        match self.random.choices([*weights], [*weights.values()])[0]:
            case "publish":
                self._publish(instance)
            case "take":
                self._take(instance)
            case "pull":
                peers = self._readable(instance)
                if peers:
                    instance.pull(self.random.choice(peers))
            case "cut":
                self.cuts ^= {frozenset(each.name for each in self.random.sample(self.instances, 2))}
                # Often for long enough to be missed.
                self._pass_time(self.random.choice([0, 35_000]))
            case "time":
                self._pass_time(self.random.choice([300, 1_500, 6_000, 30_000, 61_000]))
                instance.tick()
            case "expire":
                self._settle(instance, "expire")
            case "redrive":
                self._redrive(instance)
            case "crash":
                instance.crash()
            case "switch" | "define" as how:
                self._define(instance, switches=how == "switch")
            case other:
                self._step_of_application(other, instance)
        self.check(instance)

    def _publish(self, instance: Instance) -> None:
        if self.alters:
            kinds = self.random.choices("ab", k=self.random.randint(1, 4))
            instance.world.publish("json", [PublishedMessage(topic="T", attributes={"kind": kind}) for kind in kinds])
            instance.world.commit()
        else:
            instance.publish(self.random.randint(1, 4))

    def _define(self, instance: Instance, *, switches: bool) -> None:
        """Let an instance replicate or not, or say otherwise which messages are in the queue from there, and whose first (R129)."""
        is_on = instance.world.state.definitions.is_replicated("WORK")
        if switches:
            instance.pull_queues([] if is_on else ["WORK", "FAILED"])
            return
        owned = {"ownership": "group_local", "initial_owner": self.random.choice(self.instances).name, "group_local_domain": "eu"}
        shared = self.random.choice([{}, owned])
        work = self.random.choice([{}, {"filter": "kind = 'a'"}, {"filter": "kind = 'b'"}])
        queues = {"WORK": {**QUEUES["WORK"], **work, **shared}, "FAILED": {**QUEUES["FAILED"], **shared}}
        instance.define(queues, pulled=None if is_on else [])

    def _step_of_application(self, what: str, instance: Instance) -> None:
        """Let something happen that matters where a publisher fails over."""
        match what:
            case "application" if self.application is not None:
                self.application.publish()
            case "merge":
                instance.merge()
            case "dies" if self._readable(instance):
                instance.pull(self.random.choice(self._readable(instance)), dies=True)
            case "level" if not self.cuts and all(each.world.state.definitions.is_replicated("WORK") for each in self.instances):
                self._level()

    def _readable(self, instance: Instance) -> list[Instance]:
        peers = [each for each in self.instances if instance.pulls(each)]
        return [each for each in peers if frozenset((instance.name, each.name)) not in self.cuts]

    def _pass_time(self, passing_ms: int) -> None:
        """Let time pass, in which all but those who sleep look at beacons."""
        awake = [each for each in self.instances if not self.claims or self.random.random() < 0.8]
        for step_ms in [GAP_MS // 2] * (2 * passing_ms // GAP_MS) + [passing_ms % (GAP_MS // 2)]:
            self.clock.advance(step_ms)
            for each in awake if self.claims else ():
                self._hear(each)

    def _hear(self, instance: Instance) -> None:
        """Let an instance know whose beacons rise, and whether it has pulled all that it can read."""
        readable = self._readable(instance)
        # Beacons tell what was heard of others; only in a chain that is the only way.
        heard = {each.name for peer in readable for each in (peer, *(self._readable(peer) if self.chain else ()))}
        is_level = all(instance.has_all_of(each) for each in readable)
        instance.look(dict.fromkeys(heard, self.clock.wall_ms()), is_level=is_level)

    def _take(self, instance: Instance) -> None:
        consumer = self.random.choice(self.consumers[instance.name])
        if self.claims:
            self._allow_claims(instance)
        self._hear(instance)
        taken = consumer.take(limit=self.random.randint(1, 5), looks=False)
        for row in () if self.claims else taken:
            own, names = instance.value("WORK", row), instance.ids([row])
            assert own.owner == instance.name, "who delivers a message owns it"
            if self._hands(message_of(instance, row)) > 1:
                continue
            for other in self.instances:
                for there in map(other.own_row, names):
                    assert there is None or other.value("WORK", there) <= own, (
                        f"{other.name} knows more of what {instance.name} delivers"
                    )

    def _hands(self, message: Message) -> int:
        """Return how many instances may deliver a message: each that it was published to, until all have heard of all."""
        return 1 if message in self.settled else self.published_to(message)

    def published_to(self, message: Message) -> int:
        """Return to how many instances a message was published."""
        return 1 if self.application is None or not isinstance(message, int) else self.application.published[message]

    def _leased(self) -> dict[Message, list[Instance]]:
        holders: dict[Message, list[Instance]] = {}
        for instance in self.instances:
            for row in instance.world.state.queues["WORK"].rows[State.LEASED]:
                holders.setdefault(message_of(instance, row), []).append(instance)
        return holders

    def _level(self) -> None:
        """Let everybody hear everything: what nobody has leased but its owner is in one pair of hands from now on."""
        exchange(*self.instances)
        leased, instance = self._leased(), self.instances[0]
        for row in instance.world.state.queues["WORK"].entered:
            message, value = message_of(instance, row), instance.value("WORK", row)
            if {each.name for each in leased.get(message, [])} <= {value.owner}:
                self.settled.add(message)

    def _settle(self, instance: Instance, outcome: str) -> None:
        leased = instance.world.state.queues["WORK"].rows[State.LEASED]
        if leased:
            instance.settle(outcome, self.random.choice(list(leased)))

    def _redrive(self, instance: Instance) -> None:
        dead = instance.decide(commands.FindDeadLetters(queue="WORK", where=None))
        if dead.ranges:
            instance.decide(commands.Redrive(queue="WORK", ranges=dead.ranges))

    def check(self, instance: Instance) -> None:
        """Raise unless each message is leased by one instance at most, and one instance, which has changed, is sound."""
        for message, holders in () if self.claims else self._leased().items():
            assert len(holders) <= self._hands(message), f"{holders} have a message leased"
        assert of_state(instance.world.state) == []

    def compare(self) -> None:
        """Raise unless each instance knows all that it has pulled of the others, as `sparkq verify` finds it."""
        for instance in self.instances:
            assert of_state(instance.world.state) == []
            assert list(of_origins(instance.world.state)) == []
            for other in self.instances:
                watermark = instance.world.state.pulled.get(other.name)
                if other is instance or watermark is None:
                    continue
                spoken = JournalState(other.world.traits)
                folds.fold_all(spoken, other.world.committed[: watermark.record + 1])
                queues = instance.world.state.definitions.peers[other.name].queues
                found = of_what_was_pulled(
                    instance.world.state, spoken, tuple(queues), passes=lambda *_: True, who=instance.name, whom=other.name
                )
                assert list(found) == []


def message_of(instance: Instance, row: int) -> Message:
    """Return what a message is everywhere: its number, or its only name."""
    number = number_of(instance, row)
    return number or min(instance.ids([row]))


def later_lives(instance: Instance) -> set[Id]:
    """Return the messages that were redriven."""
    entered = instance.world.state.queues["WORK"].entered
    return {each for life, rows in instance.ownership().by_life(entered) if life for each in instance.ids(rows)}


def values(instance: Instance, queue: str) -> dict[Id, MessageValue]:
    """Return what an instance says of each message of a queue; of a dead-letter queue, of the letters that stand."""
    found = {each: instance.value(queue, row) for row in instance.world.state.queues[queue].entered for each in instance.ids([row])}
    return {each: value for each, value in found.items() if queue == "WORK" or value.stage != Stage.GONE}


@over_seeds(every=7)
def test_instances_come_to_say_the_same(seed: int) -> None:
    world = World(seed)
    world.live()
    world.compare()
    agree(world)


@over_seeds(every=7)
def test_a_chain_comes_to_say_the_same(seed: int) -> None:
    world = World(seed, chain=True)
    world.live()
    agree(world)


@over_seeds(every=7)
def test_definitions_may_change_site_by_site(seed: int) -> None:
    """R129: at any moment, also where news go by way of others, and while others claim."""
    world = World(seed, alters=True, chain=seed % 2 == 0, claims=seed % 3 == 0)
    world.live()
    agree(world)


@over_seeds(every=7)
def test_a_chain_agrees_after_claims(seed: int) -> None:
    agree_after_claims(World(seed, claims=True, chain=True))


@over_seeds(every=7, kept=KEPT_SEEDS)
def test_instances_agree_after_claims(seed: int) -> None:
    agree_after_claims(World(seed, claims=True))


def agree_after_claims(world: World) -> None:
    """Let a world live in which messages are claimed, and raise unless all say the same in the end."""
    world.live()
    acknowledged = {each for instance in world.instances for each in instance.acknowledged()}
    world.compare()
    agree(world)
    for instance in world.instances:
        gone = instance.ids(instance.rows("removed"))
        assert acknowledged <= gone | later_lives(instance), "what somebody acknowledged is gone everywhere"


def agree(world: World) -> None:
    """Let everybody hear everything, and raise unless all say the same."""
    world.cuts.clear()
    for each in world.instances:
        each.pull_queues(["WORK", "FAILED"])
    exchange(*world.instances)
    world.compare()
    first, *others = world.instances
    for other in others:
        for queue in ("WORK", "FAILED"):
            own, theirs = values(first, queue), values(other, queue)
            if world.chain and world.application is not None:
                # Names go no further than to who compares; which messages are everywhere is told by their numbers.
                own, theirs = ({each: found[each] for each in own.keys() & theirs.keys()} for found in (own, theirs))
            assert own == theirs
    for instance in world.instances:
        assert digest(instance.world.folded()) == digest(instance.world.state)
