"""A query whose function fails, on one checkpoint, started again whenever it ends."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

from pyroaring import BitMap64

from spark_queue.core import commands
from tests.deciding import started
from tests.scenario.traits import PublishedMessage
from tests.scenario.world import World

DEFINITIONS = """
[message_types.json]
topics = ["T"]
[queues.Q]
underlying_topic = "T"
max_deliveries = {max_deliveries}
max_cancels = {max_cancels}
"""


def begin(messages: int, *, max_deliveries: int = 0, max_cancels: int = 0) -> World:
    """Return a world whose queue `Q` has some messages."""
    world = World()
    definitions = tomllib.loads(DEFINITIONS.format(max_deliveries=max_deliveries, max_cancels=max_cancels))
    world.decide(commands.Apply(definitions=definitions))
    world.publish("json", [PublishedMessage(topic="T")] * messages)
    world.commit()
    return world


class FailingQuery:
    """One query of queue `Q`.

    Parameters
    ----------
    fails
        Whether fn raises on a batch.
    reports
        Whether it says so, or vanishes.
    cancels
        `on_error="cancel"`: the query lives on.
    down_ms
        How long a failed query takes to be back.
    batch_ms
        How long a micro-batch takes, and a poll that finds nothing.
    """

    def __init__(
        self, world: World, fails: Callable[[BitMap64], bool], *, reports: bool = True, cancels: bool = False,
        down_ms: int = 0, batch_ms: int = 0,
    ) -> None:  # fmt: skip
        self._world = world
        self._fails = fails
        self._reports = reports
        self._cancels = cancels
        self.down_ms = down_ms
        self.batch_ms = batch_ms
        self._planned = 0
        self._committed = 0
        self.runs = 0

    def start(self) -> bool:
        """Run until fn fails the query; returns whether there was nothing more to do instead."""
        who = started(self._world.engine, "Q", "s", max_backlog=100_000, now_ms=self._world.now_ms)
        for call in range(2, 1_000_000, 2):
            if self._planned == self._committed:
                granted = self._world.decide(commands.Next(**who, call=call, finished=self._committed, limit=100_000))
                if granted is None:
                    self._pass(self.batch_ms)
                    return True
                self._planned = granted.lease
            rows = self._world.decide(commands.Rows(**who, call=call + 1, lease=self._planned)).rows
            self.runs += 1
            if self._fails(rows) and not self._fail():
                return False
            self._committed = self._planned
            self._pass(self.batch_ms)
        raise AssertionError("it goes on for ever")

    def _fail(self) -> bool:
        """Return what fn raised, or nothing; returns whether the query lives on."""
        run = self._world.decide(commands.StartRun(queue="Q", subscription="s")).run
        if self._reports:
            self._world.decide(commands.EndRun(queue="Q", subscription="s", run=run, error="boom", cancel=self._cancels))
        if not self._cancels:
            self._pass(self.down_ms)
        return self._cancels

    def _pass(self, duration_ms: int) -> None:
        if duration_ms:
            self._world.clock.advance(duration_ms)
            self._world.engine.tick(now_ms=self._world.now_ms)
        self._world.commit()
