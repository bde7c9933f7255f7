"""One queue whose every function may raise: all others are served to their end, and so is that one once it is revived (R122)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from spark_queue.core import commands, replies
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Kind
from spark_queue.core.state.lifecycle import State
from spark_queue.protocol import wire
from spark_queue.verification.state_digest import of_ledger
from tests.scenario.traits import PublishedMessage
from tests.second_model.problems import problems
from tests.simulation.coordinator import QUEUE
from tests.simulation.loop_driver import Driver
from tests.simulation.loop_node import HeardCall
from tests.simulation.loop_world import TYPE, LoopWorld
from tests.simulation.saboteur import Saboteur
from tests.simulation.seeds import over_seeds
from tests.simulation.test_loop import QUEUES, folded, keeps_every_promise

VICTIM = "VICTIM"
LETTERS = "VICTIMS_LETTERS"

#: A message type that has faults, and its queue.
OTHER_TYPE = "other"
ELSEWHERE = "ELSEWHERE"

#: What its queue may be, beside what has faults: with letters, barriers, keys, priorities, and ages.
VICTIMS: tuple[dict[str, Any], ...] = (
    {"max_deliveries": 2, "dead_letter_queue": LETTERS},
    {"barrier": "b = 1"},
    {"order_key": "n"},
    {"priority": "n", "filter": "n > 1"},
    {"expiration": "8s"},
)

KEPT_SEEDS: dict[int, str] = {}


class VictimDriver(Driver):
    """Consumes a queue that has faults."""

    def __init__(self, world: LoopWorld, queue: str) -> None:
        super().__init__(world, f"of_{queue}", filter_sql=None)
        self._common["queue"] = queue


class FaultyWorld(LoopWorld):
    """A world with one more queue of the same topic, in which something raises now and then."""

    other_type = OTHER_TYPE

    def __init__(self, seed: int, place: str | None, **settings: Any) -> None:
        self.victim = VICTIMS[seed % len(VICTIMS)]
        super().__init__(seed, **settings)
        draw = random.Random(seed)
        self.victims = [VICTIM, *([LETTERS] if "dead_letter_queue" in self.victim else [])]
        rate = draw.choice((0.02, 0.2, 1.0))
        self.victims.append(ELSEWHERE)
        named = [QUEUE, *self.definitions["queues"], *self.definitions["message_types"]]
        victim = draw.choice((*self.victims, OTHER_TYPE))
        self.saboteur = Saboteur(victim, set(named) - {victim}, lambda: self.troubled and draw.random() < rate, place=place)
        self.drivers += [VictimDriver(self, queue) for queue in self.victims]
        self.published_elsewhere = 0

    def _create(self) -> None:
        self.definitions["queues"][VICTIM] = {"underlying_topic": "T", "lease_period": "10s", **self.victim}
        if "dead_letter_queue" in self.victim:
            self.definitions["queues"][LETTERS] = {"message_type": TYPE, "lease_period": "10s"}
        self.definitions["message_types"][OTHER_TYPE] = {"topics": ["O"], "columns": "n BIGINT, b BIGINT"}
        self.definitions["queues"][ELSEWHERE] = {"underlying_topic": "O", "lease_period": "10s"}
        super()._create()

    def publish(self, messages: int) -> None:
        super().publish(messages)
        self.storage.publish(OTHER_TYPE, [PublishedMessage(topic="O", attributes={"n": 1, "b": 0})] * 2)
        self.published_elsewhere += 2

    @contextmanager
    def judging(self) -> Iterator[None]:
        # By hand: each step does so, and what `mock` makes of it took a fifth of a world's time.
        chance, self.saboteur.chance = self.saboteur.chance, lambda: False
        try:
            yield
        finally:
            self.saboteur.chance = chance

    @property
    def consumers(self) -> list[Driver]:
        """Those of the queue without faults."""
        return self.drivers[:2]

    def note_answer(self, call: HeardCall, reply: wire.AnyReply | None, pieces: pa.Table | None) -> None:
        """Keep what is answered about the queue without faults: its judges take every answer for one about it."""
        super().note_answer(call, reply, pieces)
        if reply is not None and getattr(call.request, "queue", None) in self.victims:
            self.answers.pop()

    def drain(self, *, rounds: int = 20_000) -> None:
        """Revive what is set aside, when nothing raises any more, and let everything reach its end."""
        self.troubled = False
        for node in self.nodes:
            node.alive = False
        self._elect()
        for queue in list(self.reigning.troubles):
            call = HeardCall(self, self.nodes[-1], self.request(commands.Revive, queue=queue), None, abandoned=False)
            self.nodes[-1].mailbox.append(call)
            self.nodes[-1].step()
            assert call.reply == replies.Done()
        assert not self.reigning.troubles
        super().drain(rounds=rounds)

    def is_empty(self) -> bool:
        ledgers = [self.reigning.queues[name] for name in self.victims]
        return super().is_empty() and not any(
            each.depth or any(s.barriers for s in each.subscriptions.values()) for each in ledgers
        )


def run(seed: int) -> FaultyWorld:
    """Run a world to its end, in which one of the functions raises that work on its victim where none does."""
    called = sorted(_run(seed, None).saboteur.called)
    return _run(seed, random.Random(seed).choice(called))


def _run(seed: int, place: str | None) -> FaultyWorld:
    settings = QUEUES[seed % len(QUEUES)]
    world = FaultyWorld(seed, place, settings=dict(settings), operated=seed % 2 == 1, filter_sql=None if seed % 3 else "n > 3")
    with world.saboteur.at_work():
        world.publish(1_100 if "target_queue_depth" in settings else 6)
        for _ in range(150):
            world.step()
    world.drain()
    return world


@over_seeds(every=8, kept=KEPT_SEEDS)
def test_a_fault_stays_with_its_queue(seed: int) -> None:
    """R75, R122: nothing of it is lost or granted while it is set aside, and the log folds to what the reign believes."""
    world = run(seed)
    keeps_every_promise(world)
    state = folded(world)
    assert problems(state, world.log, world.storage.entries) == []
    for name in world.victims:
        assert of_ledger(state.queues[name]) == of_ledger(world.reigning.queues[name])
    victim, below = state.queues[VICTIM], 2 if "filter" in world.victim else 0
    assert victim.entered == BitMap64([row for row, each in enumerate(world.published) if int(each.attributes["n"]) >= below])
    assert victim.rows[State.REMOVED] | victim.rows[State.DEAD] == victim.entered
    # Also those that were published while it was set aside (R75).
    wanted = [row for row, each in enumerate(world.published) if "barrier" in world.victim and each.attributes["b"] == 1]
    assert victim.barriers == BitMap64(wanted)
    elsewhere = state.queues[ELSEWHERE].rows
    assert len(elsewhere[State.REMOVED] | elsewhere[State.DEAD]) == world.published_elsewhere
    assert granted_while_set_aside(world) == []


def granted_while_set_aside(world: FaultyWorld) -> list[int]:
    """Return the records of leases of a queue between its being set aside and its return."""
    aside, wrong = set[str](), []
    for record in world.log:
        if record.kind == Kind.SET_ASIDE:
            aside.add(str(record.queue))
        elif record.kind == Kind.REVIVED:
            aside.discard(str(record.queue))
        elif record.queue in aside and record.kind in (Kind.GRANTED, Kind.RESUMED) and to_bitmap(record.ranges):
            wrong.append(record.record)
    return wrong


@pytest.mark.slow
def test_the_saboteur_raises_in_every_room() -> None:
    """Otherwise the worlds above would prove nothing."""
    raised: set[str] = set()
    for seed in range(60):
        raised.update(run(seed).saboteur.raised)
        rooms = {name.split(".")[0] for name in raised}
        if len(raised) >= 25 and {"Sequencer", "QueueLedger"} <= rooms:
            return
    pytest.fail(f"only {sorted(raised)}")
