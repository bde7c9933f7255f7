"""A seeded world of one queue: coordinators that die, drivers like Spark's that die too, replies lost, calls delayed.

Everything real is the core; around it stands only what decides whether its promises hold: the committed log (a list), each
driver's checkpoint (offset log and commit log) and what its committed batches contain. The promises are checked against
those, never against the core's own idea of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.commands import OutcomeRows
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Incarnation, Outcome, Record
from spark_queue.core.state.letters import dead_letters
from spark_queue.errors import SparkQueueError
from tests.simulation import traits
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.coordinator import QUEUE, Coordinator, QueryFailedError, UnreachableError


class Consumer:
    """One process after another that calls the coordinator under a name, a step at a time."""

    #: The start that the present process has drawn, and how many numbered calls it has made.
    incarnation: Incarnation
    calls: int

    def __init__(self, world: World, name: str, *, queue: str = QUEUE) -> None:
        self.world = world
        self.name = name
        self.queue = queue
        #: Of a receiver it stays empty: nothing of one is committed anywhere else.
        self.checkpoint = Checkpoint()
        self.steps: Any = None
        self.delayed: list[commands.AnyCommand] = []
        #: The rows that came with the grant of a lease, and the newest lease of which they were taken as they came.
        self.given: tuple[int, BitMap64] | None = None
        self.taken = 0
        #: What the last run of each lease's batch said of single rows.
        self.said: dict[int, dict[int, Outcome]] = {}

    @property
    def _place(self) -> dict[str, Any]:
        return {"queue": self.queue, "subscription": self.name}

    def _ask(self, command: commands.AnyCommand) -> Any:
        """Call until an answer comes, as the client does; the coordinator may die on the way."""
        if self.world.random.random() < 0.05:
            self.delayed.append(command)
        while True:
            try:
                return self.world.coordinator.decide(command, dies=self.world.death())
            except UnreachableError:
                continue

    def _planner_call(self, kind: Callable[..., commands.AnyCommand], **arguments: Any) -> Any:
        self.calls += 1
        return self._ask(kind(**self._place, incarnation=self.incarnation, call=self.calls, **arguments))


class Driver(Consumer):
    """One driver process after another on one checkpoint."""

    def __init__(self, world: World, name: str, *, queue: str = QUEUE, poison: int = -1) -> None:
        super().__init__(world, name, queue=queue)
        self.poison = poison

    def step(self) -> None:
        """Take one step, or start the process."""
        if self.steps is None:
            self.steps = self._run()
        try:
            next(self.steps)
        except (QueryFailedError, SparkQueueError):
            # The query failed or ended; its planner is told to stop, which may or may not still be heard.
            self.end(heard=self.world.random.random() < 0.5)

    def end(self, *, heard: bool) -> None:
        """End the process; with `heard`, its planner's goodbye arrives (P6)."""
        planner = None if self.steps is None else getattr(self, "incarnation", None)
        self.steps = None
        if heard and planner is not None:
            # A planner that never attached has nothing to leave, and is told so; nobody waits for the answer.
            with suppress(SparkQueueError):
                self._ask(commands.Leave(**self._place, incarnation=planner, call=0, taken=self.taken))

    @property
    def now(self) -> int:
        """The coordinator's time."""
        return self.world.coordinator.now_ms

    def _run(self) -> Any:
        self.incarnation = self._ask(commands.DrawIncarnation(**self._place)).incarnation
        self.calls, self.given, self.taken = 0, None, 0
        yield
        self._planner_call(commands.Attach, ack_mode="auto", max_backlog=1_000)
        if len(self.checkpoint.ends) > self.checkpoint.committed:
            yield from self._batch(self.checkpoint.ends[-1])
        while True:
            yield
            finished = self._finished()
            granted = self._planner_call(commands.Next, finished=finished, limit=self.world.random.choice((1, 3, 8)))
            if granted is None:
                continue
            lease = self.world.coordinator.engine.state.queues[self.queue].leases[granted.lease]
            self.given = (lease.number, lease.rows.copy()) if lease.is_whole else None
            yield
            self._begin(granted.lease)
            yield
            yield from self._batch(granted.lease)

    def _finished(self) -> int:
        """Return the newest offset that the process knows of."""
        return self.checkpoint.ends[-1] if self.checkpoint.ends else 0

    def _begin(self, lease: int) -> None:
        """Write a batch to the offset log."""
        self.checkpoint.ends.append(lease)
        self.checkpoint.contents.append(BitMap64())

    def _rows(self, lease: int) -> BitMap64:
        """Return the rows of a batch, as they came with the grant, or as the coordinator says; that they came it may not hear."""
        given, self.given = self.given, None
        if given is None or given[0] != lease or self.world.random.random() < 0.3:
            return BitMap64(self._planner_call(commands.Rows, lease=lease).rows)
        self.taken, heard = lease, self.world.random.random()
        self.calls += 1
        word = commands.RowsTaken(**self._place, incarnation=self.incarnation, call=self.calls, lease=lease)
        if heard < 0.2:
            self.delayed.append(word)
        elif heard < 0.9:
            with suppress(SparkQueueError):
                self._ask(word)
        return given[1]

    def _batch(self, lease: int) -> Any:
        rows = self._rows(lease)
        self.world.read(self.name, lease, self.incarnation, rows)
        yield
        run = self._ask(commands.StartRun(**self._place)).run
        yield
        error = self._failure(rows)
        outcomes = self._outcomes(rows)
        self.said[lease] = {row: Outcome(each.outcome) for each in outcomes for row in to_bitmap(each.ranges)}
        yield
        said = () if error else outcomes
        self._ask(commands.EndRun(**self._place, run=run, outcomes=said, error=error, cancel=bool(error and self.world.cancels)))
        if error is not None and not self.world.cancels:
            raise QueryFailedError
        yield
        self.checkpoint.contents[-1] = rows if error is None else BitMap64()
        self.checkpoint.committed = len(self.checkpoint.ends)
        yield
        if self.world.random.random() < 0.5 and run.lease:
            self._ask(commands.Prove(**self._place, run=run))

    def _failure(self, rows: BitMap64) -> str | None:
        """Return what fn raises on a batch."""
        if rows and self.now < self.world.down_until_ms:
            return "the sink is down"
        return "poison" if self.poison >= 0 and self.poison in rows else None

    def _outcomes(self, rows: BitMap64) -> tuple[OutcomeRows, ...]:
        said = []
        # A barrier has no outcome.
        for row in rows if self.world.outspoken and not any(map(self.world.is_barrier, rows)) else ():
            draw = self.world.random.random()
            if draw < 0.05:
                said.append(OutcomeRows(outcome=Outcome.EXPIRE, ranges=((row, row + 1),), error="bad"))
            elif draw < 0.1:
                wait_ms = self.world.random.choice((0, 5_000))
                said.append(OutcomeRows(outcome=Outcome.CANCEL, ranges=((row, row + 1),), retry_after_ms=wait_ms))
        return tuple(said)


class World:
    """A coordinator, two drivers, and chance."""

    def __init__(
        self,
        seed: int,
        *,
        settings: dict[str, Any],
        poison: int = -1,
        troubled: bool = True,
        outspoken: bool = True,
        cancels: bool = False,
        down_until_ms: int = 0,
        redrives: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.troubled = troubled
        #: Whether batches name exceptions; otherwise everything is acknowledged.
        self.outspoken = outspoken
        #: `on_error="cancel"`: what fails goes back, and the query lives on.
        self.cancels = cancels
        #: Until then the sink takes nothing, from anybody.
        self.down_until_ms = down_until_ms
        #: Whether somebody redrives now and then, and a query consumes the dead letters.
        self.redrives = redrives
        queues = {QUEUE: {"underlying_topic": "T", "lease_period": "10s", **settings}}
        if "dead_letter_queue" in settings:
            queues[settings["dead_letter_queue"]] = {"message_type": "json"}
        self.coordinator = Coordinator({"message_types": {"json": {"topics": ["T"]}}, "queues": queues})
        self.drivers = [Driver(self, name, poison=poison) for name in ("s1", "s2")]
        if redrives:
            self.drivers.append(Driver(self, "letters", queue=settings["dead_letter_queue"]))
        #: Which planner starts were given which rows of which lease.
        self.reads: list[tuple[str, int, tuple[int, int], BitMap64]] = []
        self.published = 0

    def death(self) -> str:
        """Draw whether the coordinator dies in a call."""
        draw = self.random.random() if self.troubled else 1.0
        return "before commit" if draw < 0.03 else "after commit" if draw < 0.06 else ""

    @property
    def log(self) -> list[Record]:
        """The committed records."""
        return self.coordinator.log

    @property
    def by_hand(self) -> frozenset[str]:
        """Ids of what an operator asked for: there is none."""
        return frozenset()

    @property
    def consumers(self) -> list[Driver]:
        """Everybody with a checkpoint."""
        return self.drivers

    def is_barrier(self, bookmark: int) -> bool:
        """Return which messages are barriers."""
        return bool(self.coordinator.definitions["queues"][QUEUE].get("barrier")) and traits.is_barrier(bookmark)

    def read(self, subscription: str, lease: int, incarnation: tuple[int, int], rows: BitMap64) -> None:
        """Note what executors were told to read."""
        self.reads.append((subscription, lease, incarnation, rows))

    def publish(self, messages: int) -> None:
        """Let messages enter."""
        state = self.coordinator.engine.state
        segment = Segment(
            message_type="json", first=self.published, until=self.published + messages, path=f"{self.published}.parquet",
            version=state.message_types["json"].version + 1, token="t", entered_at_ms=self.coordinator.now_ms,
            published_at_ms=self.coordinator.now_ms, topic_min="T", topic_max="T", expires_null_count=messages,
        )  # fmt: skip
        self.published += messages
        self.coordinator.call(lambda engine: engine.enter([segment], now_ms=self.coordinator.now_ms))

    def step(self) -> None:
        """Let something happen."""
        driver = self.random.choice(self.drivers)
        draw = self.random.random()
        if draw < 0.02:
            self.publish(self.random.randint(1, 6))
        elif draw < 0.05:
            driver.end(heard=False)
        elif draw < 0.07:
            driver.end(heard=True)
        elif draw < 0.13:
            self.coordinator.now_ms += self.random.choice((100, 4_000, 11_000))
        elif draw < 0.16 and driver.delayed:
            self._deliver_late(driver)
        elif draw < 0.19 and self.redrives:
            self._redrive()
        else:
            driver.step()

    def _redrive(self) -> None:
        """Give some dead letters back, and ask again where the answer is lost."""
        dead = dead_letters(self.coordinator.engine.state, QUEUE, None)
        rows = BitMap64(row for row in dead if self.random.random() < 0.5)
        command = commands.Redrive(queue=QUEUE, ranges=tuple(to_ranges(rows)))
        while True:
            with suppress(UnreachableError):
                self.coordinator.decide(command, dies=self.death())
                return

    def _deliver_late(self, driver: Driver) -> None:
        command = driver.delayed.pop(self.random.randrange(len(driver.delayed)))
        # A refusal is what most late calls deserve; nobody waits for the answer.
        with suppress(SparkQueueError):
            self.coordinator.decide(command)

    def drain(self, *, rounds: int = 3_000) -> None:
        """Stop all trouble and let the drivers finish what is there."""
        self.troubled = False
        for driver in self.drivers:
            driver.delayed.clear()
        for turn in range(rounds):
            self.drivers[turn % len(self.drivers)].step()
            if turn % 20 == 0:
                if self.is_done():
                    return
                self.coordinator.now_ms += 6_000

    def is_done(self) -> bool:
        """Return whether nothing is left for anybody, and nobody is in the middle of a batch."""
        queues = self.coordinator.engine.state.queues
        return all(
            driver.checkpoint.is_caught_up
            and queues[driver.queue].depth == 0
            and not any(each.barriers for each in queues[driver.queue].subscriptions.values())
            for driver in self.drivers
        )
