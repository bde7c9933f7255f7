"""The coordinator of a simulated world: an engine that dies, and the log that it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spark_queue.core import commands, folds
from spark_queue.core.engine import Engine
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import SparkQueueError
from spark_queue.journal import state_codec
from tests.deciding import claim
from tests.records import record_of
from tests.simulation.traits import WholeSegments

QUEUE = "WORK"


class UnreachableError(Exception):
    """The coordinator died during a call; whether it took effect is not known to the caller."""


class QueryFailedError(Exception):
    """fn raised, so Spark ends the query without committing the batch."""


@dataclass
class Coordinator:
    """The committed log, and the engine of the newest reign."""

    definitions: dict[str, Any]
    log: list[Record] = field(default_factory=list)
    now_ms: int = 1_000

    def __post_init__(self) -> None:
        self.log.append(record_of(kind=Kind.JOURNAL_CREATED, record=0, detail={"journal": "J", "format": 1}))
        self.epoch = 0
        self.restart()
        self.decide(commands.Apply(definitions=self.definitions))

    def restart(self) -> None:
        """End the reign: what was not committed is gone; the next one recovers from the log."""
        # A snapshot of half the log, or of none of it, and the rest.
        state, cut = JournalState(WholeSegments()), len(self.log) // 2 * (self.epoch % 2)
        folds.fold_all(state, self.log[:cut])
        state = state_codec.decode(state_codec.encode(state))
        state.traits = WholeSegments()
        folds.fold_all(state, self.log[cut:])
        self.engine = Engine(state)
        self.epoch += 1
        claim(self.engine, epoch=self.epoch, host="h", address="a", pid=1, now_ms=self.now_ms)
        self.engine.take_over(now_ms=self.now_ms)
        self.log.extend(self.engine.drain_records())

    def decide(self, command: commands.AnyCommand, *, dies: str = "") -> Any:
        """Let the engine decide about a command now, as `call` runs it."""
        return self.call(lambda engine: engine.decide(command, now_ms=self.now_ms), dies=dies)

    def call(self, command: Callable[[Engine], Any], *, dies: str = "") -> Any:
        """Run one command and commit what it made; `dies` says whether the reign ends before or after the commit."""
        self.engine.tick(now_ms=self.now_ms)
        try:
            answer = command(self.engine)
        except SparkQueueError:
            self.log.extend(self.engine.drain_records())
            raise
        records = self.engine.drain_records()
        if dies == "before commit":
            self.restart()
            raise UnreachableError
        self.log.extend(records)
        if dies == "after commit":
            self.restart()
            raise UnreachableError
        return answer
