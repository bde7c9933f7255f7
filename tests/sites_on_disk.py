"""Instances on disk that pull from each other when told: real journals and pullers, and no threads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from spark_queue.coordinator.inbox import Call
from spark_queue.coordinator.peers import Peers
from spark_queue.core import commands
from spark_queue.core.definitions import parsing
from spark_queue.core.engine import Engine
from spark_queue.core.records import Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.entering import Entrance, PreparedTraits
from spark_queue.journal.layout import Store
from spark_queue.journal.message_compaction import MergeLimits
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.open import create_journal, open_journal
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.journal.schema import schema_of
from spark_queue.protocol import codec
from spark_queue.replication.exchange import Look, Pull, PullState
from spark_queue.replication.fitting import Fit
from spark_queue.replication.peer_log import LogReplacedError
from spark_queue.replication.puller import Puller
from spark_queue.views.bodies import read_bodies
from tests.deciding import claim, leased, started
from tests.fake_clock import FakeClock
from tests.no_peers import NoPeers

#: Two files are merged as soon as they are there.
LIMITS = MessageLimits(merging=MergeLimits(files_min=2, target_bytes=1_000_000))


class Site:
    """One instance on disk.

    Parameters
    ----------
    folder : Path
        Where all of them are, each in a folder of its name.
    peers : Sequence of str
        From whom it pulls.
    journal : Mapping
        Further settings of its journal.
    """

    def __init__(
        self, folder: Path, name: str, peers: Sequence[str], clock: FakeClock, *,
        journal: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.name, self.folder, self.clock = name, folder, clock
        pulled = {each: {"journal": str(folder / each), "topics": ["T"], "queues": ["WORK", "FAILED"]} for each in peers}
        queues: dict[str, Any] = {
            "WORK": {"underlying_topic": "T", "dead_letter_queue": "FAILED"}, "FAILED": {"message_type": "json"},
        }  # fmt: skip
        types = {"json": {"topics": ["T"]}}
        stored = {"journal": {"instance": name, **journal}, "peers": pulled, "queues": queues, "message_types": types}
        self.definitions = parsing.parse(stored)
        self.store = Store(str(folder / name))
        self.journal_id = create_journal(self.store, self.definitions, clock=clock)
        self.begin()

    def begin(self) -> None:
        """Begin a reign."""
        self.journal = open_journal(self.store, limits=LIMITS)
        traits = PreparedTraits(self.journal.traits)
        past = self.journal.control.load()
        self.state = past.state or JournalState(traits)
        self.state.traits = traits
        self.state.fold_all(past)
        self.engine = Engine(self.state)
        self.epoch = self.state.epoch + 1
        claim(self.engine, epoch=self.epoch, host="h", address="a", pid=1, now_ms=self.now_ms)
        self.commit()
        self._entrance = Entrance(self.journal, self.engine, traits)
        self._entrance.recover()
        self._peers = Peers(self.journal, self.engine, self._entrance, NoPeers(), now_ms=self.now_ms)
        self._pullers: dict[str, Puller] = {}

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.clock.wall_ms()

    def commit(self) -> None:
        """Make durable what was decided."""
        records = self.engine.take()
        if records:
            self.journal.control.append(records, epoch=self.epoch)

    def decide(self, command: commands.AnyCommand) -> Any:
        """Decide about a command, and make it durable."""
        reply = self.engine.decide(command, now_ms=self.now_ms)
        self.commit()
        return reply

    def records(self) -> list[Record]:
        """Return its log."""
        return list(open_journal(self.store).records())

    def publish(self, *values: str, enters: bool = True) -> None:
        """Publish messages of the topic, in one file."""
        plan = make_plan(self.store, self.definitions, message_type="json", topic="T", expires_after_ms=None)
        publish(plan, self.journal_id, self.definitions, pa.table({"value": [json.dumps(each) for each in values]}))
        if enters:
            self.enter()

    def enter(self) -> None:
        """Let in what was published."""
        self._entrance.admit("json", now_ms=self.now_ms)
        assert not self._entrance.trouble, self._entrance.trouble
        self.commit()

    def consume(self, limit: int) -> list[str]:
        """Take messages out of the queue; returns them."""
        planner = started(self.engine, "WORK", "s", max_backlog=1_000, now_ms=self.now_ms)
        lease = leased(self.engine, commands.Next(**planner, call=2, finished=0, limit=limit), now_ms=self.now_ms)
        if lease is None:
            return []
        values, rows = self.values(), list(lease.rows)
        self.engine.decide(commands.Next(**planner, call=3, finished=lease.number, limit=0), now_ms=self.now_ms)
        self.commit()
        return [values[row] for row in rows]

    def values(self) -> dict[int, str]:
        """Return all messages that are here, by bookmark."""
        known = self.state.message_types["json"]
        rows = [row for each in known.segments if not each.retired for row in range(each.first, each.until)]
        found = read_bodies(self.store, known, np.array(rows, dtype=np.int64), schema_of(pa.field("value", pa.string())))
        return {row: json.loads(str(value)) for row, value in zip(rows, found.column("value").to_pylist(), strict=True)}

    def in_state(self, state: State) -> list[str]:
        """Return the messages of the queue in a state."""
        values = self.values()
        return [values[row] for row in self.state.queues["WORK"].rows[state]]

    def tick(self) -> None:
        """Do what is due; peers are heard as far as they were read."""
        self.engine.reach.pulled_here = {name: puller.pulled_here() for name, puller in self._pullers.items()}
        self.engine.tick(now_ms=self.now_ms)
        self.commit()

    def upkeep(self) -> None:
        """Merge message files, and let retired ones go."""
        self.journal.upkeep(epoch=self.epoch, state=self.state, now_ms=self.now_ms)
        self.journal._upkeep.finish()
        self.enter()

    def pull(self, peer: str) -> None:
        """Take over what a peer has committed; what keeps it from being pulled is raised, and the next pull begins anew."""
        puller = self._pullers.pop(peer, None) or self._puller(peer)
        try:
            puller.step()
        except LogReplacedError:
            self.pull(peer)
        else:
            self._pullers[peer] = puller

    def _puller(self, peer: str) -> Puller:
        definition = self.definitions.peers[peer]

        def ask(request: Look | Pull) -> PullState | bool | None:
            call = Call(request, lambda: False)
            answer = self._peers.serve(call, request, now_ms=self.now_ms)
            codec.raise_failed(answer.reply)
            self.commit()
            return call.pulled

        def look() -> PullState:
            found = ask(Look(peer))
            assert isinstance(found, PullState)
            return found

        return Puller(
            self.store, Store(definition.journal), self.state.definitions, definition,
            look=look, hand_over=lambda pull: ask(pull) is True, clock=self.clock,
            fit=Fit(self.state.definitions, definition, {}),
        )  # fmt: skip

    def back_up(self) -> None:
        """Copy the journal."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.store.path, self._copy)

    def restore(self) -> None:
        """Put the copy back, and begin a reign."""
        shutil.rmtree(self.store.path)
        shutil.copytree(self._copy, self.store.path)
        self.begin()

    @property
    def _copy(self) -> Path:
        return self.folder / f"copy of {self.name}"


def exchange(*sites: Site) -> None:
    """Let everybody pull from everybody until nothing is new."""
    for _ in range(3):
        for each in sites:
            for peer in each.definitions.peers:
                each.pull(peer)
