"""A reign over a journal in memory and a clock that stands still, for the tests of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from spark_queue.coordinator.election import Candidate, ElectionPorts, elect
from spark_queue.coordinator.inbox import Call, Inbox
from spark_queue.coordinator.logins import Login
from spark_queue.coordinator.loop import Loop
from spark_queue.coordinator.recovery import recover
from spark_queue.core import commands, replies
from spark_queue.core.definitions import parsing
from spark_queue.core.records import Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.protocol import wire
from spark_queue.protocol.connection import Presence
from spark_queue.protocol.tokens import token_hash
from tests.fake_clock import FakeClock
from tests.memory_journal import MemoryJournal, MemoryStorage
from tests.no_peers import NoPeers
from tests.scenario.traits import PublishedMessage

DEFINITIONS: dict[str, Any] = {
    "message_types": {"json": {"topics": ["ORDERS"]}},
    "queues": {"WORK": {"underlying_topic": "ORDERS", "lease_period": "10s"}},
}
PERIOD_MS = 10_000
#: The default of `fairness_window`.
WINDOW_MS = 1_000


class NoAdvertisements:
    """A store without a hint."""

    def read(self, key: str) -> bytes | None:
        return None

    def write(self, key: str, data: bytes) -> None:
        raise AssertionError("an election writes no hint")

    def delete(self, keys: Iterable[str]) -> None:
        raise AssertionError("an election deletes no hint")


class World:
    """A stored journal, a clock, and the reign that serves."""

    def __init__(self, definitions: dict[str, Any] | None = None, *, ends_idle: bool = True) -> None:
        self.clock = FakeClock()
        self.storage = MemoryStorage(parsing.parse(definitions or DEFINITIONS), at_ms=self.clock.wall_ms())
        self.journal_id = self.storage.journal_id
        self.loop, self.journal = self.reign(ends_idle=ends_idle)
        self.requests = 0
        #: Whose token comes with calls; None for calls of the coordinator's own.
        self.who: Login | None = None

    def reign(self, *, ends_idle: bool = True, state: JournalState | None = None) -> tuple[Loop, MemoryJournal]:
        """Begin the next reign, whatever the last one does; on a state that a snapshot gave, if it is given one."""
        journal = MemoryJournal(self.storage)
        candidate = Candidate(journal_id=self.journal_id, path=journal.path, host="h", address="grpc://127.0.0.1:1", pid=1)
        around = ElectionPorts(
            advertisements=NoAdvertisements(), ping=lambda *_: Presence.GONE, clock=self.clock, pause=lambda _: None
        )
        outcome = elect(journal.control, candidate, around)
        return recover(replace(outcome, state=state), journal, Inbox(), pullers=NoPeers(), ends_idle=ends_idle), journal

    def publish(self, messages: int) -> None:
        self.storage.publish("json", [PublishedMessage(topic="ORDERS")] * messages)

    def act_as(self, principal: str | None) -> None:
        """Let calls from now on have the token of a principal, which is its name, or of the user who runs the coordinator."""
        self.who = Login(principal, "10.0.0.7", None if principal is None else token_hash(principal))

    def call(self, request: Callable[..., Any], *, abandoned: bool = False, **fields: Any) -> Call:
        """Make a call; it is served when it is given to a step."""
        self.requests += 1
        return Call(request(journal=self.journal_id, request=f"r{self.requests}", **fields), lambda: abandoned, self.who)

    def ask(self, request: Callable[..., Any], **fields: Any) -> Any:
        """Serve one call in a group of its own, and give its reply."""
        call = self.call(request, **fields)
        self.loop.step([call])
        return call.reply

    def nudge(self, message_type: str) -> None:
        """Tell of what was published, as who publishes does: what nobody tells of enters sooner where somebody looks."""
        made = wire.Nudge(journal=self.journal_id, request="nudge", message_type=message_type)
        call = Call(made, lambda: False, None)
        self.loop.step([call])
        assert isinstance(call.reply, replies.Done), call.reply

    def records(self) -> list[Record]:
        return [record for commit in self.storage.commits for record in commit.records]

    def kinds(self, since: int = 0) -> list[str]:
        return [record.kind for record in self.records()[since:]]


class Planner:
    """One planner start of a subscription."""

    def __init__(self, world: World, subscription: str = "s", *, queue: str = "WORK", filter_sql: str | None = None) -> None:
        self.world = world
        self.common: dict[str, Any] = {"queue": queue, "subscription": subscription}
        self.incarnation = world.ask(commands.DrawIncarnation, **self.common).incarnation
        self.calls = 0
        self.lease = 0
        wishes = {"ack_mode": "auto", "max_backlog": 100, "filter": filter_sql}
        assert world.ask(commands.Attach, **wishes, **self.planner()) == replies.Done()

    def planner(self) -> dict[str, Any]:
        self.calls += 1
        return {"incarnation": self.incarnation, "call": self.calls, **self.common}

    def next_call(self, *, limit: int = 10, abandoned: bool = False, **waiting: Any) -> Call:
        return self.world.call(commands.Next, abandoned=abandoned, finished=self.lease, limit=limit, **waiting, **self.planner())

    def next(self, **options: Any) -> replies.Granted:
        call = self.next_call(**options)
        self.world.loop.step([call])
        assert isinstance(call.reply, replies.Granted), call.reply
        self.lease = call.reply.lease
        return call.reply

    def leave_call(self) -> Call:
        return self.world.call(commands.Leave, incarnation=self.incarnation, call=0, **self.common)


def answered(call: Call) -> bool:
    return call.reply is not None
