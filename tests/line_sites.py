"""Instances on disk that pull from each other when told: real journals and pullers, an engine in place of the coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spark_queue import Journal
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.commands import AnyCommand
from spark_queue.core.engine import Engine
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.entering import Entrance, PreparedTraits
from spark_queue.journal.layout import Store
from spark_queue.journal.open import open_journal
from spark_queue.replication.exchange import Pull, PullState, Standing
from spark_queue.replication.fitting import Fit
from spark_queue.replication.puller import Puller
from tests.deciding import claim
from tests.fake_clock import FakeClock

TYPES = {"line": {"columns": "item STRING", "topics": ["LINES"]}}
QUEUES: dict[str, dict[str, Any]] = {
    "WORK": {"underlying_topic": "LINES", "dead_letter_queue": "FAILED", "lease_period": "60s", "max_deliveries": 2},
    "FAILED": {"message_type": "line"},
}

#: When the world begins: long after the host time at which the journals are created.
START_MS = 4_000_000_000_000


class Site:
    """One instance.

    Parameters
    ----------
    place : Path
        Where the journals of all instances are, each under its name.
    """

    def __init__(self, place: Path, name: str, peers: Sequence[str], clock: FakeClock) -> None:
        self.name = name
        self.clock = clock
        self._place = place
        pulled = {each: {"journal": str(place / each), "topics": ["LINES"], "queues": list(QUEUES)} for each in peers}
        definitions = {"journal": {"instance": name}, "peers": pulled, "message_types": TYPES, "queues": QUEUES}
        self.journal = Journal.create(str(place / name), definitions)
        self._control = DeltaControlLog(self.journal.store)
        self._opened = open_journal(self.journal.store)
        traits = PreparedTraits(self._opened.traits)
        self.engine = Engine(JournalState(traits))
        self.engine.state.fold_all(self._control.load())
        claim(self.engine, epoch=1, host="h", address="a", pid=1, now_ms=self.now_ms)
        self.engine.reach.is_level = True
        self._entrance = Entrance(self._opened, self.engine, traits)
        self._pullers: dict[str, Puller] = {}

    @property
    def now_ms(self) -> int:
        """The time of all instances."""
        return self.clock.wall_ms()

    def publish(self, *items: str) -> None:
        """Publish rows in one commit, and let them enter."""
        self.journal.publish([{"item": item} for item in items], topic="LINES")
        self._entrance.admit("line", now_ms=self.now_ms)
        self.commit()

    def decide(self, command: AnyCommand) -> Any:
        """Decide about a command, and make it durable."""
        reply = self.engine.decide(command, now_ms=self.now_ms)
        self.commit()
        return reply

    def commit(self) -> None:
        """Make durable what was decided."""
        records = self.engine.take()
        if records:
            self._control.append(records, epoch=1)

    def pull(self, peer: str) -> None:
        """Take over what a peer has committed since the last time."""
        if peer not in self._pullers:
            definitions = self.engine.state.definitions
            self._pullers[peer] = Puller(
                self.journal.store, Store(str(self._place / peer)), definitions, definitions.peers[peer],
                look=lambda: self._look(peer), hand_over=self._take, clock=self.clock,
                fit=Fit(definitions, definitions.peers[peer], {}),
            )  # fmt: skip
        self._pullers[peer].step()

    def _look(self, peer: str) -> PullState:
        state = self.engine.state
        known = state.message_types["line"]
        held = known.origins.held | {state.journal_id: to_bitmap([(0, known.entered_until)])}
        return PullState(state.journal_id, state.pulled.get(peer), {"line": held}, {"line": Standing()})

    def _take(self, pull: Pull) -> bool:
        for files in pull.files:
            assert self._entrance.take_pulled(files, self._opened.append_pulled, now_ms=self.now_ms)
        self.engine.pull(pull.pulled, now_ms=self.now_ms)
        self.commit()
        return True


def two_sites(place: Path) -> tuple[Site, Site]:
    """Make frankfurt and virginia, which pull from each other."""
    clock = FakeClock(START_MS)
    return Site(place, "frankfurt", ["virginia"], clock), Site(place, "virginia", ["frankfurt"], clock)


def exchange(*sites: Site) -> None:
    """Let everybody pull from everybody until nothing is new."""
    for _ in range(4):
        for each in sites:
            for other in sites:
                if other is not each:
                    each.pull(other.name)
