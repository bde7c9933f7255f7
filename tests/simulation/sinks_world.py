"""The world of `world.py` with a sink that its drivers append to: wrappers that die, sleep or go on unseen, puts that land late.

A driver that goes on unseen (a *zombie*) was taken for dead while fn ran: its successor is there, and it does not know. Somebody
settles by hand, decides what is in doubt by looking, and puts the journal back from a backup.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.commands import OutcomeRows
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Kind, Outcome
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import SparkQueueError
from tests.records import detail_of
from tests.simulation import traits
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.coordinator import QUEUE, QueryFailedError, UnreachableError
from tests.simulation.sink import Appender, Sink, Steps
from tests.simulation.world import Driver, World

#: Where a message may not be while it stands in the sink, whatever else is true.
_FREE = (State.AVAILABLE, State.DELAYED, State.INACTIVE, State.DEAD)


def check_sink(sink: Sink, ledger: QueueLedger, *, but: BitMap64) -> None:
    """Raise where a message stands in the sink twice, or may be given out or is done with otherwise while it stands there."""
    standing = sink.standing
    assert [row for row, times in standing.items() if times > 1 and row not in but] == [], "it stands there twice"
    free = BitMap64.union(*(ledger.rows[state] for state in _FREE))
    leased = (lease.leased for lease in ledger.leases.values() if lease.attempt is None)
    assert not (BitMap64(standing) - but) & BitMap64.union(free, *leased), "it may be given to somebody, and stands there"


def _enter(segment: Segment, now_ms: int, engine: Engine) -> None:
    engine.enter([segment], now_ms=now_ms)


class Appending:
    """What differs in a driver process of either world whose batches are appended; a zombie has a successor on its checkpoint."""

    world: Any
    name: str
    checkpoint: Checkpoint
    said: dict[int, dict[int, Outcome]]

    #: Whether fn runs, and so nobody asks any more for whom it speaks (DESIGN 19, the known limits).
    _is_running = False
    #: How many batches the offset log had when this process looked at it last.
    _known = 0

    def _reply(self, kind: Callable[..., commands.AnyCommand], **fields: Any) -> Steps:
        """Ask the coordinator, and give the reply."""
        raise NotImplementedError

    def _read(self, lease: int) -> Steps:
        """Give the rows of a batch."""
        raise NotImplementedError

    def _lives_on(self, *, heard: bool) -> bool:
        """Return whether a process that is taken for dead goes on unseen."""
        lives = self._is_running and not heard and self.world.random.random() < 0.6
        if lives:
            self.world.outlive(self)
        return lives

    def _finished(self) -> int:
        return self.checkpoint.ends[self._known - 1] if self._known else 0

    def _begin(self, lease: int) -> None:
        # Spark writes an offset if it is absent: of two processes one fails.
        if len(self.checkpoint.ends) != self._known:
            raise QueryFailedError
        self._known += 1
        super()._begin(lease)  # type: ignore[misc]  # The driver that this stands beside has it.

    def _batch(self, lease: int) -> Steps:
        who, index = {"queue": QUEUE, "subscription": self.name}, self._known - 1
        if len(self.checkpoint.ends) != self._known:
            raise QueryFailedError
        appender = Appender(self.world.sink, self.world.random, self._reply, who)
        rows = yield from self._read(lease)
        started = yield from appender.start()
        self._is_running = True
        yield
        if self.world.troubled and self.world.random.random() < 0.05:
            yield from self._reply(commands.EndRun, **who, run=started.run, error="fn raised")
            raise QueryFailedError
        if started.sink.messages:
            outcomes = self._left_out(rows)
            self.said[lease] = {row: Outcome(each.outcome) for each in outcomes for row in to_bitmap(each.ranges)}
            yield from appender.append(started.run, rows, outcomes)
        yield from self._reply(commands.EndRun, **who, run=started.run)
        yield
        if self.checkpoint.committed > index:
            raise QueryFailedError
        self.checkpoint.contents[index] = rows
        self.checkpoint.committed = index + 1
        self._is_running = False
        if self.world.random.random() < 0.5 and started.run.lease:
            yield from self._reply(commands.Prove, **who, run=started.run)
        yield

    def _left_out(self, rows: BitMap64) -> tuple[OutcomeRows, ...]:
        said = {row: self.world.random.choice(list(Outcome)) for row in rows if self.world.random.random() < 0.1}
        if "order_key" in self.world.settings:
            # What goes back with a cancelled message of its key must not be appended.
            key_of, cancelled = self.world.key_of, [row for row, outcome in said.items() if outcome == Outcome.CANCEL]
            said |= {row: Outcome.CANCEL for row in rows if any(row > each and key_of(row) == key_of(each) for each in cancelled)}
        found = []
        for row, outcome in said.items():
            wait_ms = self.world.random.choice((None, 5_000)) if outcome == Outcome.CANCEL else None
            found.append(OutcomeRows(outcome=outcome, ranges=((row, row + 1),), retry_after_ms=wait_ms))
        return tuple(found)


class SinkDriver(Appending, Driver):
    """A driver of `world.py` whose batches are appended."""

    world: SinkWorld

    def __init__(self, world: SinkWorld, name: str, checkpoint: Checkpoint | None = None) -> None:
        super().__init__(world, name)
        self.checkpoint = checkpoint or self.checkpoint

    def end(self, *, heard: bool) -> None:
        """End the process; one whose fn runs may go on unseen."""
        if not self._lives_on(heard=heard):
            super().end(heard=heard)

    def _run(self) -> Any:
        self._known = len(self.checkpoint.ends)
        try:
            yield from super()._run()
        finally:
            self._is_running = False

    def _reply(self, kind: Callable[..., commands.AnyCommand], **fields: Any) -> Steps:
        yield
        return self._ask(kind(**fields, request=self.world.request()))

    def _read(self, lease: int) -> Steps:
        yield
        return self._rows(lease)


class SinkWorld(World):
    """Two queries that append to one table, an operator, backups, and chance."""

    def __init__(self, seed: int, *, settings: dict[str, Any], restores: bool = False) -> None:
        super().__init__(seed, settings=settings)
        self.settings, self.restores, self.key_of = settings, restores, traits.key_of
        #: Whether the operator ends subscriptions, too; their batches are read by nobody again.
        self.unsubscribes = seed % 3 == 0
        self.sink = Sink(self.random)
        self.drivers = [SinkDriver(self, name) for name in ("s1", "s2")]
        self.zombies: list[SinkDriver] = []
        self.segments: list[Segment] = []
        #: What stands in the sink though a journal that was put back does not know of it: these messages come again.
        self.lost = BitMap64()
        self._backup = len(self.log)
        self._requests = 0
        self._by_hand: set[str] = set()

    @property
    def by_hand(self) -> frozenset[str]:
        """Ids of what the operator asked for."""
        return frozenset(self._by_hand)

    def request(self) -> str:
        """Return the id of one more request."""
        self._requests += 1
        return f"r{self._requests}"

    def outlive(self, driver: SinkDriver) -> None:
        """Let a process go on unseen, and another one begin on its checkpoint."""
        self.zombies.append(driver)
        self.drivers[self.drivers.index(driver)] = SinkDriver(self, driver.name, driver.checkpoint)

    def publish(self, messages: int) -> None:
        """Let messages enter, and remember them for whoever reads the message log again."""
        super().publish(messages)
        self.segments.append(self.coordinator.engine.state.message_types["json"].segments[-1])

    def step(self) -> None:
        """Let something happen."""
        draw = self.random.random()
        if draw < 0.06:
            self.sink.step()
        elif draw < 0.16 and self.zombies:
            self._step_zombie()
        elif draw < 0.17:
            self._settle_by_hand()
        elif draw < 0.18:
            self.decide()
        elif draw < 0.19 and self.restores:
            self._back_up_or_restore()
        elif draw < 0.22:
            self.random.choice(self.drivers).end(heard=False)
        else:
            super().step()
        self.check()

    def check(self) -> None:
        """Look at the world; see `check_sink`."""
        check_sink(self.sink, self.coordinator.engine.state.queues[QUEUE], but=self.lost)

    def decide(self) -> None:
        """Let an operator decide what is in doubt, by a look at the sink."""
        look = Appender(self.sink, self.random, self._asking, {"queue": QUEUE, "subscription": "operator"})
        for told in self.coordinator.decide(commands.FindAttempts(queue=QUEUE)).attempts:
            with suppress(SparkQueueError, UnreachableError):
                for _ in look.decide(told):
                    if self.troubled and self.random.random() < 0.1:
                        # They went home.
                        return

    def _asking(self, kind: Callable[..., commands.AnyCommand], **fields: Any) -> Steps:
        yield
        return self.coordinator.decide(kind(**fields), dies=self.death())

    def _step_zombie(self) -> None:
        zombie = self.random.choice(self.zombies)
        zombie.step()
        if zombie.steps is None:
            self.zombies.remove(zombie)

    def _settle_by_hand(self) -> None:
        row, outcome, request = self.random.randrange(self.published), self.random.choice(list(Outcome)), self.request()
        rows = (OutcomeRows(outcome=outcome, ranges=((row, row + 1),)),)
        asked: commands.AnyCommand = commands.Settle(queue=QUEUE, outcomes=rows, request=request)
        if not self.unsubscribes or self.random.random() < 0.9:
            self._by_hand.add(request)
        else:
            asked = commands.Unsubscribe(queue=QUEUE, subscription=self.random.choice(self.drivers).name, request=request)
        with suppress(SparkQueueError, UnreachableError):
            self.coordinator.decide(asked, dies=self.death())

    def _back_up_or_restore(self) -> None:
        if self.random.random() < 0.6:
            self._backup = len(self.log)
            return
        del self.coordinator.log[self._backup :]
        # Whoever puts a journal back stops what works on it.
        self.zombies.clear()
        self.sink.cut()
        self.coordinator.restart()
        entered = self.coordinator.engine.state.message_types["json"].entered_until
        missing = [segment for segment in self.segments if segment.first >= entered]
        for each in missing:
            self.coordinator.call(partial(_enter, each, self.coordinator.now_ms))
        self.lost |= self._unknown()
        # What a checkpoint says of leases is about others than those that the log has now.
        self.drivers = [SinkDriver(self, driver.name) for driver in self.drivers]

    def _unknown(self) -> BitMap64:
        """Return what stands in the sink, and no record of the log will ever say so."""
        known = {(each.subscription, 2 * detail_of(each)["attempt"]) for each in self.log if each.kind == Kind.LANDED}
        for lease in self.coordinator.engine.state.queues[QUEUE].leases.values():
            # Of an attempt whose successors are lost it cannot be told any more that it landed.
            if lease.attempt is not None and self.sink.transaction(lease.subscription) == 2 * lease.attempt.number:
                known.add((lease.subscription, 2 * lease.attempt.number))
        unknown = (each.rows for each in self.sink.commits if (each.subscription, each.transaction) not in known)
        return BitMap64.union(BitMap64(), *unknown)

    def drain(self, *, rounds: int = 6_000) -> None:
        """Stop all trouble, and let everybody finish, also who goes on unseen."""
        self.sink.troubled = False
        self.sink.cut()
        for _ in range(100):
            if self.zombies:
                self._step_zombie()
                self.check()
        self.zombies.clear()
        self.decide()
        super().drain(rounds=rounds)
        self.check()
