"""A seeded world around the real coordinator loop: a store, a network, clocks and elections that all misbehave.

The loop, its commands, the entrance, the election and the engine are the product's; the journal is the one in memory. Every
storage step can fail, be cut short by the end of the process, have its effect and lose its reply, or take so long that the
rest of the world goes on meanwhile: `_at_storage` lets other things happen inside the step, so a coordinator is overtaken
between its write and its reply, and wakes up deposed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa

from spark_queue.coordinator.logins import Login
from spark_queue.coordinator.pulling import PeerPullers
from spark_queue.core.definitions import parsing
from spark_queue.core.records import Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.ports import JournalPort, MessageLogEntry
from spark_queue.protocol import wire
from tests.memory_journal import LateCommitError
from tests.no_peers import NoPeers
from tests.scenario.traits import PublishedMessage
from tests.simulation.coordinator import QUEUE
from tests.simulation.loop_driver import Driver, Operator
from tests.simulation.loop_node import START_MS, HeardCall, KilledError, Node
from tests.simulation.loop_store import CleanedStorage, SimulatedJournal

#: How deep storage steps may nest: coordinators that wait for the store at the same time.
NESTED_MAX = 3

#: Storage steps at which things go wrong.
_STEPS = frozenset({"control.load", "control.append", "control.check", "messages.tail"})

TYPE = "line"
COLUMNS = "n BIGINT, b BIGINT"


class LoopWorld:
    """One journal, coordinators that believe to reign, two consumers, a publisher, an operator, and chance."""

    def __init__(
        self,
        seed: int,
        *,
        settings: dict[str, Any],
        journal: dict[str, Any] | None = None,
        operated: bool = False,
        filter_sql: str | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.troubled = True
        self.elapsed_ms = 0
        self.settings = settings
        self.definitions: dict[str, Any] = {
            "journal": journal or {},
            "message_types": {TYPE: {"topics": ["T"], "columns": COLUMNS}},
            "queues": {QUEUE: {"underlying_topic": "T", "lease_period": "10s", **settings}},
        }
        if "dead_letter_queue" in settings:
            self.definitions["queues"][settings["dead_letter_queue"]] = {"message_type": TYPE}
        self.nodes: list[Node] = []
        self.published: list[PublishedMessage] = []
        self.drivers = [Driver(self, "s1", filter_sql=None), Driver(self, "s2", filter_sql=filter_sql)]
        self.operator = Operator(self) if operated else None
        #: Requests whose copies are still under way.
        self.stray: list[tuple[wire.AnyRequest, Login | None]] = []
        self.answers: list[tuple[wire.AnyRequest, wire.AnyReply, pa.Table | None]] = []
        #: Answers that a coordinator gave to calls that were made after a newer one had begun (P7).
        self.deposed_answers: list[str] = []
        self._nested = 0
        self._requests = 0
        self._create()

    def _create(self) -> None:
        self.storage = CleanedStorage(parsing.parse(self.definitions), at_ms=START_MS)
        self.storage.hook = self._at_storage
        self.storage.snapshot_records = self.random.choice((None, 20, 60))
        self.journal_id = self.storage.journal_id

    def open(self, node: Node) -> JournalPort:
        """Open the journal for a coordinator process."""
        return SimulatedJournal(self.storage)

    def pullers(self, node: Node) -> PeerPullers:
        """Make what pulls for a coordinator process."""
        return NoPeers()

    @property
    def log(self) -> Sequence[Record]:
        """The committed records."""
        return [record for commit in self.storage.commits for record in commit.records]

    @property
    def epoch(self) -> int:
        """The newest reign, as the log has it."""
        return self.storage.commits[-1].epoch

    @property
    def message_log(self) -> Iterable[MessageLogEntry]:
        """What was committed to the message table."""
        return self.storage.entries[TYPE]

    @property
    def by_hand(self) -> AbstractSet[str]:
        """Ids of what the operator asked for."""
        return frozenset() if self.operator is None else self.operator.requests

    @property
    def consumers(self) -> list[Driver]:
        """Everybody with a checkpoint."""
        return self.drivers

    def is_barrier(self, bookmark: int) -> bool:
        """Return which messages were published as barriers."""
        return "barrier" in self.settings and self.published[bookmark].attributes["b"] == 1

    def judging(self) -> AbstractContextManager[Any]:
        """Return a context in which the world is looked at, and nothing of it goes wrong."""
        return nullcontext()

    def publish(self, messages: int) -> None:
        """Publish one file."""
        made = [
            PublishedMessage(topic="T", attributes={"n": self.random.randrange(10), "b": int(self.random.random() < 0.15)})
            for _ in range(messages)
        ]
        self.storage.publish(TYPE, made)
        self.published += made

    def request(self, kind: Callable[..., wire.AnyRequest], **fields: Any) -> wire.AnyRequest:
        """Make a request with an id of its own."""
        self._requests += 1
        return kind(journal=self.journal_id, request=f"r{self._requests}", **fields)

    def limit(self) -> int:
        """Draw how many messages a micro-batch may have."""
        return self.random.choice((200, 500) if "target_queue_depth" in self.settings else (1, 3, 8, 20))

    def send(self, request: wire.AnyRequest, who: Login | None = None) -> HeardCall | None:
        """Hand a request to a coordinator that its sender takes for the reigning one; None where nobody listens."""
        listening = [node for node in self.nodes if node.alive and node.loop is not None]
        if not listening:
            return None
        if self.troubled and self.random.random() < 0.05:
            # The network keeps it, and a copy of it may arrive at any time.
            self.stray.append((request, who))
        node = listening[-1] if self.random.random() < 0.85 else self.random.choice(listening)
        call = HeardCall(self, node, request, who, abandoned=self.troubled and self.random.random() < 0.02)
        node.mailbox.append(call)
        return call

    def note_answer(self, call: HeardCall, reply: wire.AnyReply | None, pieces: pa.Table | None) -> None:
        """Keep an answer, and judge whether the one who gave it could still reign when it was asked for."""
        if reply is None:
            return
        assert isinstance(call.request, wire.AnyRequest), "pullers are asked nothing here"
        self.answers.append((call.request, reply, pieces))
        if call.asked_in_epoch > call.node.epoch:
            said = f"epoch {call.node.epoch} answered {call.request!r}, asked in epoch {call.asked_in_epoch}"
            self.deposed_answers.append(said)

    def step(self) -> None:
        """Let something happen."""
        draw = self.random.random()
        if draw < 0.45:
            self._step_driver()
        elif draw < 0.80:
            self._step_node()
        elif draw < 0.84:
            self.publish(self.random.randint(1, 5))
        elif draw < 0.88:
            self.advance(self.random.choice((50, 1_200, 1_200, 4_000, 11_000)))
        elif draw < 0.90:
            self._end_driver()
        elif draw < 0.93 and self.stray:
            self.send(*self.stray.pop(self.random.randrange(len(self.stray))))
        elif draw < 0.96 and self.operator is not None:
            self.operator.step()
        else:
            self._trouble()

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass, on each host at its own rate."""
        self.elapsed_ms += elapsed_ms
        for node in self.nodes:
            node.clock.advance(int(elapsed_ms * node.rate))

    def drain(self, *, rounds: int = 4_000) -> None:
        """Stop all trouble and let everything reach its end under one last coordinator."""
        self.troubled = False
        self.stray.clear()
        for node in self.nodes:
            node.alive = False
        self._elect()
        if self.operator is not None:
            self.operator.drain()
        for turn in range(rounds):
            for driver in self.drivers:
                driver.step()
            self._serve()
            if turn % 4 == 3 and all(driver.checkpoint.is_caught_up for driver in self.drivers):
                if self.is_empty():
                    return
                # Nobody works, so what is left waits for a moment.
                self.advance(2_000)
            elif turn % 16 == 15:
                self.advance(1_000)

    def _serve(self) -> None:
        """Let the last coordinator go on."""
        self.nodes[-1].step()

    def is_empty(self) -> bool:
        """Return whether every message has reached its end."""
        ledger = self.reigning.queues[QUEUE]
        return ledger.depth == 0 and not any(each.barriers for each in ledger.subscriptions.values())

    @property
    def reigning(self) -> JournalState:
        """What the newest coordinator believes."""
        loop = self.nodes[-1].loop
        assert loop is not None
        return loop._engine.state

    def _step_driver(self) -> None:
        self.random.choice(self.drivers).step()

    def _end_driver(self) -> None:
        self.random.choice(self.drivers).end(heard=self.random.random() < 0.5)

    def _step_node(self) -> None:
        idle = [node for node in self.nodes if node.alive and not node.busy]
        if idle:
            self.random.choice((idle[-1], self.random.choice(idle))).step()
        elif self.random.random() < 0.3:
            # Whoever calls finds nobody, or only one who is silent.
            self._elect()

    def _trouble(self) -> None:
        draw = self.random.random()
        if draw < 0.2:
            self._elect()
        elif draw < 0.4 and self.nodes:
            # Where it waits for the store, it ends when it wakes up.
            self.random.choice(self.nodes).alive = False
        elif draw < 0.6 and self.nodes:
            self.random.choice(self.nodes).clock.set_wall(
                START_MS + self.elapsed_ms + self.random.choice((0, -3_600_000, 7_200_000))
            )
        else:
            self._trouble_store(land=draw < 0.8)

    def _trouble_store(self, *, land: bool) -> None:
        """Let a commit arrive that was on its way, or clean the log."""
        if land and self.storage.late:
            self.storage.late.pop(0).land()
        else:
            self.storage.cleaned_until = max(self.storage.cleaned_until, self.storage.version - self.random.randint(1, 4))

    def _elect(self) -> None:
        self.nodes = [node for node in self.nodes if node.alive or node.busy]
        if sum(node.alive for node in self.nodes) < NESTED_MAX:
            self.nodes.append(Node(self, len(self.answers)))

    def _at_storage(self, step: str, moment: str) -> None:
        if not self.troubled or step not in _STEPS:
            return
        draw = self.random.random()
        if draw < 0.003:
            raise KilledError
        if draw < 0.01:
            late = step == "control.append" and moment == "before" and self.random.random() < 0.5
            raise LateCommitError("late") if late else OSError("the store did not answer")
        if draw < 0.03 and self._nested < NESTED_MAX:
            self._meanwhile()

    def _go_on(self) -> None:
        """Let something happen while somebody waits for the store."""
        self.step()

    def _meanwhile(self) -> None:
        """Let a storage step take its time; a process that was killed meanwhile does not wake up."""
        waiting = [node for node in self.nodes if node.busy]
        self._nested += 1
        try:
            if self.random.random() < 0.3:
                self._elect()
            for _ in range(self.random.randint(1, 25)):
                self._go_on()
        finally:
            self._nested -= 1
        if waiting and not waiting[-1].alive:
            raise KilledError
