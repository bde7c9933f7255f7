"""Two worlds that differ in hidden messages alone: whatever a principal asks, it is answered the same in both (R12, R47, R48).

In one the messages are in the queue, and others settle, purge and redrive them. In the other they never entered it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.protocol import wire
from tests.scenario.traits import PublishedMessage
from tests.unit.coordinator.loop_world import World
from tests.unit.coordinator.test_hidden import definitions, few

WHO = {"queue": "WORK", "subscription": "s"}
STEPS = 150
WHERE = ("id > 1", "id < 9", "id <> 7 and id > 2", "id = 3")
OUTCOMES = ("acknowledge", "cancel", "expire")

QUEUES: tuple[dict[str, Any], ...] = (
    {}, {"semantics": "at-most-once"}, {"leasing": "strict"}, {"dead_letter_queue": "DEAD"}, {"max_deliveries": 2},
    {"max_cancels": 2}, {"order_key": "id"}, {"priority": "id"}, {"max_backlog": 5}, {"filter": "id <> 8"},
    {"expiration": "60s"},
)  # fmt: skip


class Twins:
    """One principal in both worlds; it sees ids above 5."""

    def __init__(self, queue: dict[str, Any], seed: int) -> None:
        self.draw = random.Random(seed)  # Not a secret.
        stored = definitions(few(), **queue)
        stored["message_types"]["orders"]["topics"].append("ELSEWHERE")
        stored["queues"] |= {"DEAD": {"message_type": "orders"}} if "dead_letter_queue" in queue else {}
        self.worlds = {topic: World(stored, ends_idle=False) for topic in ("ORDERS", "ELSEWHERE")}
        self.published = self.calls = self.number = 0
        self.incarnation: tuple[int, int] | None = None
        self.lease, self.run = 0, replies.Run(incarnation=(0, 0), lease=0)
        self.publish(10)

    def publish(self, count: int) -> None:
        ids = [self.draw.randrange(10) for _ in range(count)]
        self.published += count
        for hidden, world in self.worlds.items():
            rows = [PublishedMessage(topic="ORDERS" if number > 5 else hidden, attributes={"id": number}) for number in ids]
            world.storage.publish("orders", rows)
            world.nudge("orders")
        self.pass_by(1_000)

    def pass_by(self, time_ms: int) -> None:
        for world in self.worlds.values():
            world.clock.advance(time_ms)
            world.loop.step([])

    def meddle(self) -> None:
        """Let somebody else do something to hidden messages, where there are some."""
        world, hidden = self.worlds["ORDERS"], f"id = {self.draw.randrange(6)}"
        world.act_as("all")
        if self.draw.random() < 0.3:
            world.ask(commands.Purge, queue="WORK", where=hidden)
        elif self.draw.random() < 0.3:
            found = world.ask(commands.FindDeadLetters, queue="WORK", where=hidden)
            world.ask(commands.Redrive, queue="WORK", ranges=found.ranges)
        else:
            world.ask(commands.SettleWhere, queue="WORK", where=hidden, outcome=self.draw.choice(["acknowledge", "expire"]))

    def ask(self, command: type[commands.Command], **fields: Any) -> Any:
        self.number += 1
        request = self.draw.choice([command.__name__, str(self.number)])
        answers = [self._answer(world, command, {"request": request, **fields}) for world in self.worlds.values()]
        first, second = ((wire.encode(reply), pieces) for reply, pieces in answers)
        assert first == second, (command, fields)
        self.pass_by(self.draw.choice([0, 0, 1_000, 12_000]))
        return answers[0][0]

    def _answer(self, world: World, command: type[commands.Command], fields: dict[str, Any]) -> Any:
        world.act_as("few")
        made: Any = command(journal=world.journal_id, **fields)
        call = Call(made, lambda: False, world.who)
        world.loop.step([call])
        assert call.reply is not None
        return call.reply, None if call.pieces is None else call.pieces.drop_columns("path").to_pylist()

    def attach(self) -> None:
        drawn = self.ask(commands.DrawIncarnation, **WHO)
        self.incarnation, self.calls = drawn.incarnation, 0
        wishes = {"ack_mode": self.draw.choice(["auto", "explicit"]), "max_backlog": self.draw.choice([3, 100])}
        self.ask(commands.Attach, **self.planner(), **wishes, filter=self.draw.choice([None, *WHERE]))

    def planner(self) -> dict[str, Any]:
        self.calls += 1
        return {**WHO, "incarnation": self.incarnation, "call": self.calls}

    def ranges(self) -> tuple[tuple[int, int], ...]:
        first = self.draw.randrange(self.published + 2)
        return ((first, first + self.draw.randrange(1, 5)),)

    def outcomes(self, **more: Any) -> tuple[commands.OutcomeRows, ...]:
        return (commands.OutcomeRows(outcome=self.draw.choice(OUTCOMES), ranges=self.ranges(), **more),)

    def step(self) -> None:
        draw = self.draw
        match draw.randrange(12):
            case 0:
                self.attach()
            case 1 | 2 | 3:
                reply = self.ask(commands.Next, **self.planner(), finished=self.lease, limit=draw.choice([1, 2, 100]))
                self.lease = getattr(reply, "lease", self.lease)
            case 4:
                self.ask(commands.Rows, **self.planner(), lease=self.lease)
            case 5:
                self.run = getattr(self.ask(commands.StartRun, **WHO), "run", self.run)
            case 6:
                said = {"error": draw.choice([None, "boom"]), "settle": draw.random() < 0.3, "cancel": draw.random() < 0.3}
                self.ask(commands.EndRun, **WHO, run=self.run, outcomes=self.outcomes() if draw.random() < 0.5 else (), **said)
            case 7:
                self.ask(commands.Settle, queue="WORK", outcomes=self.outcomes(lease=draw.choice([None, self.lease, 1])))
            case 8:
                self.ask(commands.SettleWhere, queue="WORK", where=draw.choice(WHERE), outcome=draw.choice(OUTCOMES))
            case 9:
                self.ask(commands.Purge, queue="WORK", where=draw.choice(["id = 7", *WHERE, None]))
            case 10:
                self.ask(commands.FindDeadLetters, queue="WORK", where=draw.choice([*WHERE, None]))
            case _:
                self.ask(commands.Redrive, queue="WORK", ranges=self.ranges())


@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: " ".join(queue) or "plain")
def test_no_answer_tells_of_hidden_messages(queue: dict[str, Any]) -> None:
    for seed in range(3):
        twins = Twins(queue, seed)
        twins.attach()
        for _ in range(STEPS):
            if twins.draw.random() < 0.15:
                twins.publish(twins.draw.randrange(1, 6))
            if twins.draw.random() < 0.2:
                twins.meddle()
            twins.step()
