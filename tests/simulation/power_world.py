"""A simulated world whose journal is a directory of a disk, and whose power fails now and then."""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa

from spark_queue.core import commands, replies
from spark_queue.core.definitions import parsing
from spark_queue.journal.store import CONTROL
from spark_queue.protocol import wire
from tests.simulation.bucket import SimulatedStore
from tests.simulation.disk import Disk
from tests.simulation.disk_world import DiskWorld, Process
from tests.simulation.loop_node import HeardCall


class PowerWorld(DiskWorld):
    """A world in which all processes may die at once, and what was not forced to the disk with them."""

    make_bucket = Disk
    bucket: Disk

    def __init__(self, seed: int, *, settings: dict[str, Any], journal: dict[str, Any]) -> None:
        #: Those that might be alive.
        self.processes: list[Process] = []
        #: How likely the power fails in a step.
        self.outages = 0.0
        super().__init__(seed, settings=settings, journal=journal)
        #: The newest version of the control log that somebody was answered by.
        self.answered = 0
        #: What was answered and is not in the log any more.
        self.lost: list[str] = []
        # It has been there for a while.
        self.bucket.sync_all()

    def way(self, process: Process | None) -> SimulatedStore:
        """Give a process its way to the disk, and remember that it lives."""
        if process is not None:
            self.processes.append(process)
        return super().way(process)

    def note_answer(self, call: HeardCall, reply: wire.AnyReply | None, pieces: pa.Table | None) -> None:
        """Note what must survive from now on, beside what every world notes."""
        super().note_answer(call, reply, pieces)
        assert call.node.loop is not None
        self.answered = max(self.answered, call.node.loop._journal.control.version)  # type: ignore[attr-defined]  # Of the journal on Delta.

    def step(self) -> None:
        """Let something happen."""
        if self.troubled and self.random.random() < self.outages:
            self.lose_power()
        else:
            super().step()

    def apply_fsync(self) -> None:
        """Let an operator turn `durability` on, and publishers go by it once that was answered."""
        self.troubled = False
        self.bucket.late.clear()
        for node in self.nodes:
            node.alive = False
        self._elect()
        self.definitions["journal"]["durability"] = "fsync"
        call = self.send(self.request(commands.Apply, definitions=copy.deepcopy(self.definitions)))
        self.nodes[-1].step()
        assert call is not None
        assert call.reply == replies.Done()
        self.parsed = parsing.parse(self.definitions)
        self.troubled = True

    def lose_power(self) -> None:
        """Let all processes die, and the disk come back with what it was forced to hold and some of the rest."""
        for process in self.processes:
            process.alive = False
        self.processes.clear()
        for driver in self.drivers:
            driver.end(heard=False)
        self.bucket.lose_power(self.random)
        self._log = (-1, [])
        self.order, self._ordered_entries = [], 0
        versions = len(self.bucket.tables[CONTROL])
        if versions <= self.answered:
            self.lost.append(f"version {self.answered} of {CONTROL}; {versions - 1} is the newest")
