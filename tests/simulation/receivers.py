"""Receivers of a simulated world: the real `Hand` around simulated calls, one process after another, a step at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from spark_queue.core import commands
from spark_queue.core.records import Incarnation, Outcome
from spark_queue.core.replies import Granted, RefusedRows
from spark_queue.core.state.lifecycle import ACTIVE
from spark_queue.errors import SparkQueueError
from spark_queue.receiver.hand import Hand, Said, to_outcomes
from spark_queue.receiver.message import Message, Settlement
from tests.simulation.coordinator import QUEUE
from tests.simulation.traits import key_of
from tests.simulation.world import Consumer, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A message was handed to the function of a receiver."""

    receiver: str
    incarnation: Incarnation
    bookmark: int
    #: How many records the log had then.
    record: int
    #: Older messages of its key that were in the queue then, and of which its receiver had said nothing final.
    older: tuple[int, ...]


class SimulatedReceiver(Consumer):
    """One receiver process after another under one name."""

    world: ReceiversWorld

    def __init__(self, world: ReceiversWorld, name: str, *, ends: bool = False, kills: int = -1, fails_until_ms: int = 0) -> None:
        super().__init__(world, name)
        #: Whether its subscription ends with it; then each process has a name of its own.
        self._ends = ends
        #: The message that kills its process, and until when its function fails.
        self._kills, self._fails_until_ms = kills, fails_until_ms
        self._starts = 0
        self._requests = 0
        self.hand: Hand | None = None
        self.incarnation: Incarnation = (0, 0)

    @property
    def now_ms(self) -> int:
        """The coordinator's time."""
        return self.world.coordinator.now_ms

    @property
    def _place(self) -> dict[str, Any]:
        return {"queue": self.queue, "subscription": f"{self.name}-{self._starts}" if self._ends else self.name}

    def step(self) -> None:
        """Take one step, or start the process."""
        if self.steps is None:
            self._starts += 1
            self.steps = self._run()
        try:
            next(self.steps)
        except SparkQueueError:
            # What no time mends ends it.
            self.end(heard=self.world.random.random() < 0.5)

    def end(self, *, heard: bool) -> None:
        """End the process; with `heard`, its goodbye arrives (R137)."""
        hand, self.steps, self.hand = self.hand, None, None
        if hand is None:
            return
        self.world.note_end(hand)
        if heard:
            leave = commands.Leave(**self._place, incarnation=self.incarnation, call=0, begun=hand.begun())
            with suppress(SparkQueueError):
                self._ask(leave)

    def _run(self) -> Any:
        drawn = self._ask(commands.DrawIncarnation(**self._place))
        self.incarnation, self.calls, self._at_most_once = drawn.incarnation, 0, drawn.at_most_once
        yield
        backlog = self.world.random.choice((1, 3, 8))
        self._planner_call(commands.Attach, ack_mode="receive", max_backlog=backlog, ends=self._ends)
        self.hand = Hand(self.queue, max_backlog=backlog, clock_s=lambda: self.now_ms / 1_000)
        self._period_s = drawn.lease_period_ms / 1_000
        while True:
            yield
            draw = self.world.random.random()
            if draw < 0.25:
                if self.hand.wants_more:
                    yield from self._poll(self.hand)
            elif draw < 0.5:
                self._begin(self.hand)
            elif draw < 0.75:
                self._finish(self.hand)
            elif draw < 0.9:
                yield from self._settle(self.hand)
            elif self.hand.has_leases:
                yield from self._renew(self.hand)

    def _poll(self, hand: Hand) -> Any:
        began_s = self.now_ms / 1_000
        granted = self._planner_call(
            commands.Next, finished=hand.newest, limit=hand.limit, overrun=hand.overrun(), at_most_once=self._at_most_once
        )
        if granted is not None:
            yield from self._take(hand, granted, began_s)

    def _take(
        self, hand: Hand, granted: Granted, began_s: float, said: Sequence[Said] = (), refused: Sequence[RefusedRows] = ()
    ) -> Any:
        """Take a lease in hand, after the answer to the outcomes that it came with, if it did."""
        ledger = self.world.coordinator.engine.state.queues[self.queue]
        lease = ledger.leases[granted.lease]
        rows = list(lease.rows if lease.is_barrier else ledger.outstanding(lease))
        deliveries = [ledger.delivered.of(row) for row in rows]
        is_keyed = ledger.definition.order_key is not None
        # The answer takes its time.
        yield
        hand.answer(said, refused)
        messages = [
            Message(
                self, None, 0, bookmark=row, lease=granted.lease, delivery_count=count, cancel_count=0, is_barrier=lease.is_barrier,  # type: ignore[arg-type]  # Nobody reads its body.
                key=key_of(row) if is_keyed else None, priority=None,
            )
            for row, count in zip(rows, deliveries, strict=True)
        ]  # fmt: skip
        hand.add(granted.lease, messages, until_s=began_s + self._period_s, alone=granted.alone, at_most_once=self._at_most_once)

    def _begin(self, hand: Hand) -> None:
        message = hand.take()
        if message is None:
            return
        self.world.note_begin(self, hand, message)
        if message.bookmark == self._kills:
            self.end(heard=False)

    def _finish(self, hand: Hand) -> None:
        work = hand.messages_in_work()
        if not work:
            return
        message = self.world.random.choice(work)
        draw = self.world.random.random() if self.world.outspoken and not message.is_barrier else 1.0
        if self.now_ms < self._fails_until_ms:
            _ = hand.say(message, Outcome.CANCEL, error="it is down", failed=True)
        elif draw < 0.06:
            _ = hand.say(message, Outcome.CANCEL, retry_after_ms=self.world.random.choice((0, 5_000)))
        elif draw < 0.1:
            _ = hand.say(message, Outcome.EXPIRE, error="bad")
        else:
            self.world.done.setdefault(message.bookmark, set()).add(self._place["subscription"])
            self.world.settlements.append((message.bookmark, hand.say(message, Outcome.ACKNOWLEDGE)))

    def _settle(self, hand: Hand) -> Any:
        said = hand.take_said()
        if not said:
            return
        self._requests += 1
        request = f"{self._place['subscription']}-{self.incarnation}-{self._requests}"
        settle = commands.SettleHeld(**self._place, outcomes=tuple(to_outcomes(said)), request=request)
        answer, began_s = self._ask(settle), self.now_ms / 1_000
        granted = None
        if hand.wants_more and self.world.random.random() < 0.5:
            # Both are one call, which the coordinator takes apart (`Commands.run`); a poll that it refuses is made again alone.
            with suppress(SparkQueueError):
                granted = self._planner_call(
                    commands.Next, finished=hand.newest, limit=hand.limit, overrun=hand.overrun(), at_most_once=self._at_most_once
                )
        if granted is None:
            yield
            hand.answer(said, answer.refused)
        else:
            yield from self._take(hand, granted, began_s, said, answer.refused)

    def _renew(self, hand: Hand) -> Any:
        newest, began_s = hand.newest, self.now_ms / 1_000
        renewed = self._ask(commands.Renew(**self._place, incarnation=self.incarnation, call=0, lease=newest))
        yield
        standing_s = {number: stands_ms / 1_000 for number, stands_ms in renewed.leases}
        hand.renewed(newest, standing_s, asked_s=began_s, period_s=renewed.lease_period_ms / 1_000)

    # What a `Message` asks of its receiver; the world's steps say outcomes to the hand themselves.

    message_type = "json"

    def settle(self, message: Message, outcome: str, **about: Any) -> Settlement:
        """Refuse what no step does."""
        raise NotImplementedError


class ReceiversWorld(World):
    """A coordinator, receivers, streams beside them, and chance."""

    def __init__(
        self, seed: int, *, streams: int = 1, receivers: int = 2, kills: int = -1, fails_until_ms: int = 0, **about: Any
    ) -> None:
        super().__init__(seed, **about)
        #: Every handing out; of each message the subscriptions of which a function ended well on it; acknowledgements.
        self.begun: list[Begun] = []
        self.done: dict[int, set[str]] = {}
        self.settlements: list[tuple[int, Settlement]] = []
        self.streams = self.drivers[:streams]
        named = [(f"r{number}", number % 2 == 1) for number in range(receivers)]
        self.receivers = [
            SimulatedReceiver(self, name, ends=ends, kills=kills, fails_until_ms=fails_until_ms) for name, ends in named
        ]
        self.drivers = [*self.streams, *self.receivers]  # type: ignore[list-item]  # All that a world does with one, it does with the other.

    def note_begin(self, receiver: SimulatedReceiver, hand: Hand, message: Message) -> None:
        """Note that a function begins on a message."""
        ledger = self.coordinator.engine.state.queues[QUEUE]
        said = unanswered(hand)
        older = tuple(
            row
            for state in ACTIVE
            for row in ledger.rows[state]
            if row < message.bookmark
            and key_of(row) == key_of(message.bookmark)
            and said.get(row) not in (Outcome.ACKNOWLEDGE, Outcome.EXPIRE)
        )
        self.begun.append(
            Begun(
                receiver=receiver._place["subscription"], incarnation=receiver.incarnation, bookmark=message.bookmark,
                record=len(self.log), older=older,
            )
        )  # fmt: skip

    def note_end(self, hand: Hand) -> None:
        """Note that a process ended: what it had said and heard no answer to, nobody knows."""
        gone = unanswered(hand)
        self.settlements = [(row, each) for row, each in self.settlements if each.is_done or row not in gone]

    def is_done(self) -> bool:
        """Return whether nothing is left for anybody."""
        ledger = self.coordinator.engine.state.queues[QUEUE]
        streams_are_done = all(driver.checkpoint.is_caught_up for driver in self.streams)
        empty = all(each.hand is None or each.hand.is_empty for each in self.receivers)
        pending = any(each.barriers for each in ledger.subscriptions.values())
        return streams_are_done and empty and ledger.depth == 0 and not pending


def unanswered(hand: Hand) -> dict[int, str]:
    """Return the outcomes that a hand has said and has no answer to, by bookmark."""
    said: list[Said] = [*hand._said.values(), *hand._sent.values()]
    return {each.message.bookmark: each.outcome for each in said}
