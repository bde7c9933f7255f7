"""A receiver of a world over a followed table: the real `Hand` and the real `MessageBodies`, one process after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_queue.core import commands
from spark_queue.core.records import Outcome
from spark_queue.core.replies import Granted, RefusedRows
from spark_queue.errors import SparkQueueError
from spark_queue.protocol import wire
from spark_queue.receiver.bodies import MessageBodies
from spark_queue.receiver.hand import Hand, Said, to_outcomes
from spark_queue.receiver.message import Message
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.coordinator import QUEUE
from tests.simulation.loop_driver import Client, Steps
from tests.simulation.loop_world import COLUMNS, TYPE

if TYPE_CHECKING:
    from tests.simulation.followed_world import FollowedWorld


class TableReceiver(Client):
    """One receiver process after another under one name; it has no checkpoint, and says an outcome for each message."""

    world: FollowedWorld

    def __init__(self, world: FollowedWorld, name: str) -> None:
        super().__init__(world)
        self.name = name
        self.checkpoint = Checkpoint()
        self.said: dict[int, dict[int, Outcome]] = {}
        self._common: dict[str, Any] = {"queue": QUEUE, "subscription": name}
        self._steps: Steps | None = None
        self._hand: Hand | None = None

    def step(self) -> None:
        """Take one step, or start the process."""
        if self._steps is None:
            self._steps = self._run()
        try:
            next(self._steps)
        except SparkQueueError:
            # What no time mends ends it: a file that is gone, or a newer start of its own.
            self.end(heard=self.world.random.random() < 0.5)

    def end(self, *, heard: bool) -> None:
        """End the process; with `heard`, its goodbye is sent (R137)."""
        hand, self._steps, self._hand = self._hand, None, None
        if heard and hand is not None:
            self.tell(commands.Leave, incarnation=self._incarnation, call=0, begun=hand.begun(), **self._common)

    def _planner(self, kind: Callable[..., wire.AnyRequest], **fields: Any) -> Steps:
        self._calls += 1
        call = yield from self.ask(kind, incarnation=self._incarnation, call=self._calls, **self._common, **fields)
        return call

    def _run(self) -> Steps:
        drawn = (yield from self.ask(commands.DrawIncarnation, **self._common)).reply
        self._incarnation, self._calls, self._period_s = drawn.incarnation, 0, drawn.lease_period_ms / 1_000
        self._at_most_once = drawn.at_most_once
        backlog = self.world.random.choice((1, 3, 8))
        yield from self._planner(commands.Attach, ack_mode="receive", max_backlog=backlog)
        self._bodies = MessageBodies(self.world.way(None), TYPE, COLUMNS)
        self._hand = hand = Hand(QUEUE, max_backlog=backlog, clock_s=self._clock_s)
        while True:
            yield
            draw = self.world.random.random()
            if draw < 0.25 and hand.wants_more:
                began_s = self._clock_s()
                call = yield from self._planner(
                    commands.Next, finished=hand.newest, limit=hand.limit, overrun=hand.overrun(), at_most_once=self._at_most_once
                )
                self._take(hand, call.reply, began_s)
            elif draw < 0.5:
                hand.take()
            elif draw < 0.75:
                self._finish(hand)
            elif draw < 0.9:
                yield from self._settle(hand)
            elif hand.has_leases:
                yield from self._renew(hand)

    def _clock_s(self) -> float:
        return self.world.elapsed_ms / 1_000

    def _take(self, hand: Hand, granted: Granted, began_s: float) -> None:
        """Take a lease in hand, with the bodies of its messages."""
        if granted.messages:
            messages = list(self._messages(granted))
            self.world.note_bodies({message.bookmark: message["n"] for message in messages})
            hand.add(
                granted.lease, messages, until_s=began_s + self._period_s, alone=granted.alone, at_most_once=self._at_most_once
            )

    def _messages(self, granted: Granted) -> Iterator[Message]:
        for place in granted.places:
            keys = iter(place.keys or [None] * place.rows)
            bookmark = place.bookmark
            for part in self._bodies.rows(place.path, place.first_row, place.rows, place.columns):
                for row in range(part.table.num_rows):
                    yield Message(
                        self, part, row, bookmark=bookmark, lease=granted.lease, delivery_count=place.delivery_count,  # type: ignore[arg-type]  # No step settles by it.
                        cancel_count=place.cancel_count, is_barrier=place.is_barrier, key=next(keys), priority=None,
                    )  # fmt: skip
                    bookmark += 1

    def _finish(self, hand: Hand) -> None:
        work = hand.messages_in_work()
        if not work:
            return
        message, draw = self.world.random.choice(work), self.world.random.random()
        if draw < 0.06 and not message.is_barrier:
            _ = hand.say(message, Outcome.CANCEL, retry_after_ms=self.world.random.choice((0, 5_000)))
        elif draw < 0.1 and not message.is_barrier:
            _ = hand.say(message, Outcome.EXPIRE, error="bad")
        else:
            self.world.finished.add(message.bookmark)
            self.world.settlements.append((message.bookmark, hand.say(message, Outcome.ACKNOWLEDGE)))

    def _settle(self, hand: Hand) -> Steps:
        said: Sequence[Said] = hand.take_said()
        if not said:
            return
        poll, began_s = None, self._clock_s()
        if hand.wants_more and self.world.random.random() < 0.5:
            self._calls += 1
            poll = commands.ReceiverPoll(
                incarnation=self._incarnation,
                call=self._calls,
                finished=hand.newest,
                limit=hand.limit,
                overrun=hand.overrun(),
                at_most_once=self._at_most_once,
            )
        call = yield from self.ask(commands.SettleHeld, outcomes=tuple(to_outcomes(said)), poll=poll, **self._common)
        refused: Sequence[RefusedRows] = call.reply.refused
        hand.answer(said, refused)
        if call.reply.granted is not None:
            self._take(hand, call.reply.granted, began_s)

    def _renew(self, hand: Hand) -> Steps:
        newest, began_s = hand.newest, self._clock_s()
        call = yield from self.ask(commands.Renew, incarnation=self._incarnation, call=0, lease=newest, **self._common)
        standing_s = {number: stands_ms / 1_000 for number, stands_ms in call.reply.leases}
        hand.renewed(newest, standing_s, asked_s=began_s, period_s=call.reply.lease_period_ms / 1_000)
