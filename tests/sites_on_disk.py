"""Instances on disk that pull from each other when told: real journals, cores and pullers, and no threads."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from spark_queue import Journal
from spark_queue.coordinator.inbox import Call
from spark_queue.coordinator.pulling import Peers
from spark_queue.core import commands
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import PeerDefinition
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import SparkQueueError
from spark_queue.journal.creation import create_journal
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.message_compaction import MergeLimits
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.open import open_journal
from spark_queue.journal.publisher import Published, make_plan, publish
from spark_queue.journal.schema import schema_of
from spark_queue.journal.store import Store
from spark_queue.ports import Clock
from spark_queue.protocol import wire
from spark_queue.protocol.host import host_id
from spark_queue.replication.exchange import ApplyPulled, PullProgressQuery, PullState, Step
from spark_queue.replication.peer_log import LogReplacedError
from spark_queue.replication.puller import Puller
from spark_queue.replication.validation import Fit
from spark_queue.views.bodies import read_bodies
from tests.deciding import claim, leased, started
from tests.fake_clock import FakeClock
from tests.no_peers import NoPeers

#: Two files are merged as soon as they are there.
LIMITS = MessageLimits(merging=MergeLimits(files_min=2, files_due=2, target_bytes=1_000_000))

#: Where nobody answers who asks whether the coordinator of a site lives.
NOBODY = "grpc://127.0.0.1:1"


class DiskInstance:
    """One instance on disk, whose engine decides for whoever asks.

    Parameters
    ----------
    path : Path
        Where its journal is.
    definitions : Mapping
        Of its journal, which is made; without, it is there.
    """

    def __init__(self, path: Path, clock: Clock, definitions: Mapping[str, Any] | None = None) -> None:
        self.path, self.clock = path, clock
        self.store, self.journal = Store(str(path)), Journal(str(path))
        if definitions is not None:
            create_journal(self.store, parsing.parse(definitions), clock=clock)
        self.begin()
        self.definitions = self.state.definitions

    def begin(self) -> None:
        """Begin a reign."""
        self.opened = open_journal(self.store, limits=LIMITS)
        traits = PreparedTraits(self.opened.traits)
        state = self.opened.control.load().fold(traits)
        self.engine, self.epoch = Engine(state), state.epoch + 1
        claim(self.engine, epoch=self.epoch, host=host_id(), address=NOBODY, now_ms=self.now_ms)
        self._entrance = Sequencer(self.opened, self.engine, traits)
        self._entrance.recover()
        self._peers = Peers(self.opened, self.engine, self._entrance, NoPeers(), now_ms=self.now_ms)
        self.commit()
        #: By peer, with the last step of each.
        self._pullers: dict[str, tuple[Puller, Step]] = {}

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.clock.wall_ms()

    @property
    def state(self) -> JournalState:
        """What its log says."""
        return self.engine.state

    @property
    def known(self) -> MessageTypeState:
        """What is here of the messages of its first queue."""
        return self.state.message_types[self._message_type]

    @property
    def _message_type(self) -> str:
        return next(iter(self.state.definitions.queues.values())).message_type

    def commit(self) -> None:
        """Make durable what was decided."""
        records = self.engine.drain_records()
        if records:
            self.opened.control.append(records, epoch=self.epoch)

    def decide(self, command: commands.AnyCommand) -> Any:
        """Decide about a command, and make it durable."""
        reply = self.engine.decide(command, now_ms=self.now_ms)
        self.commit()
        return reply

    def define(self, **changed: Any) -> None:
        """Define something anew; from whom it pulls, it begins to pull anew, as a coordinator does."""
        self.decide(commands.Apply(definitions={**self.state.definitions.stored, **changed}))
        self.definitions = self.state.definitions
        self._pullers.clear()

    def settle(self, outcome: str, *rows: int, queue: str = "WORK") -> None:
        """Say what became of messages, by hand."""
        said = commands.OutcomeRows(outcome=outcome, ranges=tuple((row, row + 1) for row in rows))
        self.decide(commands.Settle(queue=queue, outcomes=(said,)))

    def records(self, kind: str | None = None) -> list[Record]:
        """Return its log, or the records of a kind."""
        return [record for record in open_journal(self.store).records() if kind in (None, record.kind)]

    def publish_rows(
        self, rows: pa.Table, message_type: str | None = None, *, enters: bool = True, delay_ms: int | None = None,
        expires_ms: int | None = None, **options: Any,
    ) -> Published:  # fmt: skip
        """Publish rows in one file to the first topic of a message type, by default that of the first queue."""
        now = self.state.definitions
        of = now.message_type(message_type or self._message_type)
        plan = make_plan(
            self.store, now, message_type=of.name, topic=of.topics[0], expires_after_ms=expires_ms, deliver_after_ms=delay_ms
        )
        done = publish(plan, self.state.journal_id, now, rows, clock=self.clock, **options)
        if enters:
            self.enter()
        return done

    def enter(self) -> None:
        """Let in what was published."""
        self.admit()
        self.commit()

    def admit(self) -> None:
        """Let in what was published, with the next commit."""
        for name in self.state.message_types:
            while self._entrance.admit(name, now_ms=self.now_ms):
                continue
        assert not self._entrance.trouble, self._entrance.trouble

    def pull(self, peer: str | None = None, **other: Any) -> SparkQueueError | None:
        """Take over what a peer has committed, or the only one; returns what keeps a part of it from being pulled.

        What keeps all of it is raised, and the next pull begins anew. See `puller` for what may be other than defined.
        """
        peer = peer or next(iter(self.definitions.peers))
        puller = self._pullers.pop(peer)[0] if peer in self._pullers else self.puller(peer, **other)
        try:
            step = puller.step(tells_held=True)
        except LogReplacedError:
            puller = self.puller(peer, **other)
            step = puller.step(tells_held=True)
        self._pullers[peer] = puller, step
        self.engine.liveness.there = lambda peer, message_type: (self._pullers[peer][1].held or {})[message_type]
        return step.trouble

    def puller(self, peer: str, *, store: Store | None = None, definition: PeerDefinition | None = None) -> Puller:
        """Make what pulls a peer, from where it is defined to be, or elsewhere."""
        now = self.state.definitions
        definition = definition or now.peers[peer]
        return Puller(
            self.store, store or Store(definition.journal), now, definition, look=lambda: self._look(peer),
            hand_over=self.hand_over, clock=self.clock, fit=Fit(now, definition, {}),
        )  # fmt: skip

    def _look(self, peer: str) -> PullState:
        found = self._ask(PullProgressQuery(peer))
        assert isinstance(found, PullState)
        return found

    def hand_over(self, pull: ApplyPulled) -> bool:
        """Take over what was read; returns whether it was taken."""
        return self._ask(pull) is True

    def _ask(self, request: PullProgressQuery | ApplyPulled) -> PullState | bool | None:
        call = Call(request, lambda: False)
        self._serve(call)
        if call.reply is not None:
            wire.raise_failed(call.reply)
        return call.pulled

    def _serve(self, call: Call) -> None:
        """Serve a puller, as the loop of a coordinator does."""
        assert isinstance(call.request, PullProgressQuery | ApplyPulled)
        call.reply = self._peers.serve(call, call.request, now_ms=self.now_ms).reply
        self.commit()


class Site(DiskInstance):
    """An instance of the lines of orders, and of their queue.

    Parameters
    ----------
    folder : Path
        Where all instances are, each in a folder of its name.
    peers : Sequence of str
        From whom it pulls.
    journal : Mapping
        Further settings of its journal.
    """

    clock: FakeClock

    def __init__(
        self, folder: Path, name: str, peers: Sequence[str], clock: FakeClock, *,
        journal: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        queues: dict[str, Any] = {
            "WORK": {"underlying_topic": "LINES", "dead_letter_queue": "FAILED", "lease_period": "60s", "max_deliveries": 2},
            "FAILED": {"message_type": "line"},
        }  # fmt: skip
        definitions = {
            "journal": {"instance": name, **journal},
            "message_types": {"line": {"columns": "item STRING", "topics": ["LINES"]}},
            "queues": queues,
            "peers": {each: {"journal": str(folder / each), "topics": ["LINES"], "queues": list(queues)} for each in peers},
        }
        super().__init__(folder / name, clock, definitions)
        self._copy = folder / f"copy of {name}"

    def publish(self, *items: str, enters: bool = True) -> None:
        """Publish lines in one file."""
        self.publish_rows(pa.table({"item": items}), enters=enters)

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
        rows = [row for each in self.known.segments if not each.retired for row in range(each.first, each.until)]
        schema = schema_of(pa.field("item", pa.string()))
        found = read_bodies(self.store, self.known, np.array(rows, dtype=np.int64), schema)
        return {row: str(item) for row, item in zip(rows, found.column("item").to_pylist(), strict=True)}

    def in_state(self, state: State) -> list[str]:
        """Return the messages of the queue in a state."""
        values = self.values()
        return [values[row] for row in self.state.queues["WORK"].rows[state]]

    def tick(self) -> None:
        """Do what is due; peers are heard as far as they were read."""
        self.engine.liveness.pulled_here = {name: step.pulled_here for name, (_, step) in self._pullers.items()}
        self.engine.tick(now_ms=self.now_ms)
        self.commit()

    def upkeep(self) -> None:
        """Merge message files, and let retired ones go."""
        self.opened.upkeep(epoch=self.epoch, state=self.state, now_ms=self.now_ms)
        self.opened._upkeep.finish()
        self.enter()

    def back_up(self) -> None:
        """Copy the journal."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.path, self._copy)

    def restore(self) -> None:
        """Put the copy back, and begin a reign."""
        shutil.rmtree(self.path)
        shutil.copytree(self._copy, self.path)
        self.begin()


def two_sites(folder: Path, clock: FakeClock | None = None, **of_second: Any) -> tuple[Site, Site]:
    """Make frankfurt and virginia, which pull from each other."""
    clock = clock or FakeClock()
    return Site(folder, "frankfurt", ["virginia"], clock), Site(folder, "virginia", ["frankfurt"], clock, **of_second)


def exchange(*sites: DiskInstance) -> None:
    """Let everybody pull from everybody until nothing is new."""
    for _ in range(4):
        for each in sites:
            for peer in each.definitions.peers:
                each.pull(peer)
