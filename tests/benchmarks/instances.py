"""Instances to measure: journals on disk, each with its core and its entrance in this process, which pull when they are told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.coordinator.inbox import Call
from spark_queue.coordinator.peers import Peers
from spark_queue.core import commands
from spark_queue.core.definitions import parsing
from spark_queue.core.engine import Engine
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.entering import Entrance, PreparedTraits
from spark_queue.journal.layout import Store
from spark_queue.journal.open import create_journal, open_journal
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.protocol import codec
from spark_queue.replication.exchange import Look, Pull, PullState
from spark_queue.replication.fitting import Fit
from spark_queue.replication.puller import Puller
from tests.benchmarks.journals import COMMIT_MESSAGES, QUEUE, TOPIC, counted
from tests.deciding import claim
from tests.no_peers import NoPeers


class BenchInstance:
    """One instance with a queue that it shares with its peers.

    Parameters
    ----------
    place : Path
        Where the journals of all instances are made.
    name : str
        Of the instance.
    peers : Sequence of str
        From whom it pulls.
    columns : str
        Of its messages; without, they are JSON.
    """

    def __init__(self, place: Path, name: str, peers: Sequence[str] = (), *, columns: str | None = None) -> None:
        self._type = "json" if columns is None else "order_line"
        stored: dict[str, Any] = {
            "journal": {"instance": name, "coordinator_idle": "1h"},
            "message_types": {self._type: {"topics": [TOPIC], **({} if columns is None else {"columns": columns})}},
            "queues": {QUEUE: {"underlying_topic": TOPIC}},
            "peers": {each: {"journal": str(place / each), "topics": [TOPIC], "queues": [QUEUE]} for each in peers},
        }
        self.name = name
        self.definitions = parsing.parse(stored)
        self.store = Store(str(place / name))
        self.journal_id = create_journal(self.store, self.definitions)
        self.begin_reign()
        self._pullers: dict[str, Puller] = {}

    def begin_reign(self) -> float:
        """Fold the log as a coordinator that starts does; returns how long that took, in seconds."""
        began_s = time.perf_counter()
        self._journal, self._clock = open_journal(self.store), SystemClock()
        traits = PreparedTraits(self._journal.traits)
        state = JournalState(traits)
        state.fold_all(self._journal.control.load())
        self.engine = Engine(state)
        self._entrance = Entrance(self._journal, self.engine, traits)
        self._epoch = state.epoch + 1
        # A coordinator that comes after it asks there who lives: nobody.
        claim(self.engine, epoch=self._epoch, now_ms=self.now_ms, address="grpc://127.0.0.1:1")
        self._entrance.recover()
        self._peers = Peers(self._journal, self.engine, self._entrance, NoPeers(), now_ms=self.now_ms)
        self.commit()
        return time.perf_counter() - began_s

    @property
    def now_ms(self) -> int:
        """The host's time, in milliseconds."""
        return self._clock.wall_ms()

    def count(self, state: State) -> int:
        """Return how many messages are in a state."""
        return len(self.engine.state.queues[QUEUE].rows[state])

    def decide(self, command: commands.AnyCommand) -> None:
        """Decide about a command, and make it durable."""
        self.engine.decide(command, now_ms=self.now_ms)
        self.commit()

    def commit(self) -> None:
        """Make durable what was decided."""
        records = self.engine.take()
        if records:
            self._journal.control.append(records, epoch=self._epoch)

    def publish(self, rows: pa.Table) -> None:
        """Publish rows in one commit, and let them enter."""
        plan = make_plan(self.store, self.definitions, message_type=self._type, topic=TOPIC, expires_after_ms=None)
        publish(plan, self.journal_id, self.definitions, rows)
        while self._entrance.admit(self._type, now_ms=self.now_ms):
            continue
        self.commit()

    def publish_numbers(self, messages: int) -> None:
        """Publish the smallest messages, 100,000 in a commit."""
        for first in range(0, messages, COMMIT_MESSAGES):
            numbers = pa.array(range(first, min(first + COMMIT_MESSAGES, messages)), pa.int64())
            self.publish(pa.table({"value": counted(numbers)}))

    def pull(self, peer: str, store: Store | None = None) -> float:
        """Pull a peer to its end, as the puller's thread and the loop do together; returns how long it took, in seconds.

        Parameters
        ----------
        store : Store, optional
            Through which the peer is read from the first pull on.
        """
        definition = self.definitions.peers[peer]
        if peer not in self._pullers:
            self._pullers[peer] = Puller(
                self.store, store or Store(definition.journal), self.engine.state.definitions, definition,
                look=lambda: self._look(peer), hand_over=self._take_over, clock=self._clock,
                fit=Fit(self.engine.state.definitions, definition, {}),
            )  # fmt: skip
        began_s = time.perf_counter()
        while self._pullers[peer].step():
            continue
        return time.perf_counter() - began_s

    def _look(self, peer: str) -> PullState:
        found = self._serve(Look(peer))
        assert isinstance(found, PullState)
        return found

    def _take_over(self, pull: Pull) -> bool:
        found = self._serve(pull)
        self.commit()
        return found is True

    def _serve(self, request: Look | Pull) -> PullState | bool | None:
        call = Call(request, lambda: False)
        answer = self._peers.serve(call, request, now_ms=self.now_ms)
        codec.raise_failed(answer.reply)
        return call.pulled
