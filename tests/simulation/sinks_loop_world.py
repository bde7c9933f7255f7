"""The world of `loop_world.py` with a sink that its drivers append to: the store, the network and clocks misbehave, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyroaring import BitMap64

from spark_queue.core import commands
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.loop_driver import Driver, rows_of
from tests.simulation.loop_world import LoopWorld
from tests.simulation.sink import Sink, Steps
from tests.simulation.sinks_world import Appending, check_sink


class SinkLoopDriver(Appending, Driver):
    """A driver of `loop_world.py` whose batches are appended."""

    world: SinkLoopWorld

    def __init__(self, world: SinkLoopWorld, name: str, *, filter_sql: str | None, checkpoint: Checkpoint | None = None) -> None:
        super().__init__(world, name, filter_sql=filter_sql)
        self.checkpoint = checkpoint or self.checkpoint

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended."""
        return self._steps is None

    def end(self, *, heard: bool) -> None:
        """End the process; one whose fn runs may go on unseen."""
        if not self._lives_on(heard=heard):
            super().end(heard=heard)

    def _run(self) -> Steps:
        self._known = len(self.checkpoint.ends)
        try:
            yield from super()._run()
        finally:
            self._is_running = False

    def _reply(self, kind: Callable[..., commands.AnyCommand], **fields: Any) -> Steps:
        call = yield from self.ask(kind, **fields)
        return call.reply

    def _read(self, lease: int) -> Steps:
        pieces = yield from self._pieces(lease)
        return rows_of(pieces)


class SinkLoopWorld(LoopWorld):
    """Two queries that append to one table."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self.sink = Sink(self.random)
        filters = [each.filter_sql for each in self.drivers]
        self.drivers = [SinkLoopDriver(self, f"s{number}", filter_sql=each) for number, each in enumerate(filters, start=1)]
        self.zombies: list[SinkLoopDriver] = []

    def key_of(self, row: int) -> object:
        """Return the order key of a message."""
        return self.published[row].attributes["n"]

    def outlive(self, driver: SinkLoopDriver) -> None:
        """Let a process go on unseen, and another one begin on its checkpoint."""
        self.zombies.append(driver)
        successor = SinkLoopDriver(self, driver.name, filter_sql=driver.filter_sql, checkpoint=driver.checkpoint)
        successor.said = driver.said
        self.drivers[self.drivers.index(driver)] = successor

    def step(self) -> None:
        """Let something happen."""
        draw = self.random.random()
        if draw < 0.06:
            self.sink.step()
        elif draw < 0.2 and self.zombies:
            self._step_zombie()
        else:
            super().step()

    def check(self) -> None:
        """Look at what the newest coordinator believes; see `check_sink`."""
        check_sink(self.sink, self.reigning.queues["WORK"], but=BitMap64())

    def drain(self, *, rounds: int = 4_000) -> None:
        """Stop all trouble, and let everything reach its end; who goes on unseen is gone by then."""
        for _ in range(100):
            if self.zombies:
                self._step_zombie()
        self.zombies.clear()
        self.sink.troubled = False
        self.sink.cut()
        super().drain(rounds=rounds)
        self.check()

    def is_empty(self) -> bool:
        """Return whether every message has reached its end; meanwhile a look at the sink."""
        self.check()
        return super().is_empty()

    def _step_zombie(self) -> None:
        zombie = self.random.choice(self.zombies)
        zombie.step()
        if zombie.is_gone:
            self.zombies.remove(zombie)
