"""Random programs of several principals: what the model says is refused or hidden, the coordinator refuses and hides (R12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_queue.core import commands
from spark_queue.core.definitions.keys import CHANGE, READ, WRITE
from tests.model.granted import FILTERS, Granted, Grants, rights_entry
from tests.model.test_programs import PHASES
from tests.scenario.traits import PublishedMessage
from tests.unit.coordinator.loop_world import Planner, World
from tests.unit.coordinator.test_rights import ADMIN, code_of, principal

QUEUES = ("WORK", "WASTE", "OTHER")
PEOPLE = ("ann", "bob")

#: What queues an entry may name, as people understand it.
PATTERNS = ("WORK", "OTHER", "^W.*", "^.*")

TEXTS = [text and text.format("id") for text in FILTERS]

_RIGHTS = st.sets(st.sampled_from([READ, WRITE, CHANGE]), min_size=1)
entries = st.builds(rights_entry, st.sampled_from(PATTERNS), _RIGHTS, st.sampled_from([None, None, *TEXTS]))
grants = st.fixed_dictionaries({name: st.lists(entries, min_size=1, max_size=3) for name in PEOPLE})


def definitions(granted: Grants) -> dict[str, Any]:
    principals = {name: principal(*each, token=name) for name, each in granted.items()}
    keys = {"underlying_topic": "ORDERS", "message_type": "orders", "fairness": "fast"}
    return {
        "message_types": {"orders": {"columns": "id BIGINT", "topics": ["ORDERS"]}},
        "queues": dict.fromkeys(QUEUES, keys),
        "principals": {"admin": ADMIN, **principals},
    }


@dataclass
class Model:
    """Who may what, and what each queue holds: the row numbers of its messages, which are their ids and bookmarks."""

    granted: Grants
    published: int = 0
    holds: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in QUEUES})

    def may(self, who: str, right: str, queue: str) -> bool:
        return Granted(self.granted, "id").may(who, right, queue)

    def sees(self, who: str, queue: str, row: int) -> bool:
        return Granted(self.granted, "id").sees(who, queue, row)

    def seen(self, who: str, queue: str) -> set[int]:
        return {row for row in self.holds[queue] if self.sees(who, queue, row)}

    def publish(self, count: int) -> list[int]:
        rows = list(range(self.published, self.published + count))
        self.published += count
        for each in self.holds.values():
            each.update(rows)
        return rows


class Program:
    """Does the same on both sides, and compares them."""

    def __init__(self, granted: Grants) -> None:
        self.model = Model(granted)
        self.world = World(definitions(granted), ends_idle=False)

    def publish(self, _who: str, _queue: str, data: st.DataObject) -> None:
        rows = self.model.publish(data.draw(st.integers(1, 6)))
        self.world.storage.publish("orders", [PublishedMessage(topic="ORDERS", attributes={"id": row}) for row in rows])
        self.world.clock.advance(1_000)
        self.world.nudge("orders")

    def consume(self, who: str, queue: str, _data: st.DataObject) -> None:
        """Take what is there, and prove it."""
        if not self.model.may(who, READ, queue):
            self.refused(commands.DrawIncarnation, queue, subscription=who)
            return
        planner = Planner(self.world, who, queue=queue)
        seen = self.model.seen(who, queue)
        granted = planner.next(limit=100)
        assert granted.messages == len(seen)
        assert self.ledger(queue).subscriptions[who].principal == who
        if seen:
            assert set(self.ledger(queue).leases[granted.lease].rows) == seen
            assert planner.next(limit=100).messages == 0
        self.model.holds[queue] -= seen

    def settle_where(self, who: str, queue: str, _data: st.DataObject) -> None:
        asked = {"where": "id >= 0", "outcome": "acknowledge"}
        self.change(who, queue, commands.SettleWhere, lambda reply: reply.acknowledged, **asked)

    def purge(self, who: str, queue: str, _data: st.DataObject) -> None:
        self.change(who, queue, commands.Purge, lambda reply: reply.purged)

    def settle(self, who: str, queue: str, data: st.DataObject) -> None:
        """Settle one message by its bookmark: a hidden one is as one that never entered."""
        if not self.model.published:
            return
        row = data.draw(st.integers(0, self.model.published - 1))
        outcomes = (commands.OutcomeRows(outcome="acknowledge", ranges=((row, row + 1),)),)
        if not self.model.may(who, CHANGE, queue):
            self.refused(commands.Settle, queue, outcomes=outcomes)
            return
        reply = self.world.ask(commands.Settle, queue=queue, outcomes=outcomes)
        assert code_of(reply) == (None if self.model.sees(who, queue, row) else "UNKNOWN_BOOKMARK")
        self.model.holds[queue] -= {row} if self.model.sees(who, queue, row) else set()

    def apply(self, who: str, _queue: str, data: st.DataObject) -> None:
        """Only who administers may, and from then on other rights hold."""
        granted = data.draw(grants)
        reply = self.world.ask(commands.Apply, definitions=definitions(granted))
        assert code_of(reply) == "ACCESS_DENIED", who
        self.world.act_as("admin")
        assert code_of(self.world.ask(commands.Apply, definitions=definitions(granted))) is None
        self.model.granted = granted

    def change(self, who: str, queue: str, command: type[commands.Command], count: Callable[[Any], int], **asked: Any) -> None:
        if not self.model.may(who, CHANGE, queue):
            self.refused(command, queue, **asked)
            return
        seen = self.model.seen(who, queue)
        assert count(self.world.ask(command, queue=queue, **asked)) == len(seen)
        self.model.holds[queue] -= seen

    def refused(self, command: type[commands.Command], queue: str, **asked: Any) -> None:
        before = len(self.world.records())
        assert code_of(self.world.ask(command, queue=queue, **asked)) == "ACCESS_DENIED"
        assert len(self.world.records()) == before

    def ledger(self, queue: str) -> Any:
        return self.world.loop._engine.state.queues[queue]

    def compare(self) -> None:
        for queue, rows in self.model.holds.items():
            found = self.ledger(queue).rows
            assert {row for state, each in found.items() if state.value in ("available", "leased") for row in each} == rows, queue


STEPS = (Program.publish, Program.consume, Program.consume, Program.settle_where, Program.purge, Program.settle, Program.apply)


@settings(max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(granted=grants, data=st.data())
def test_random_programs_of_principals_are_refused_and_shown_what_the_model_says(granted: Grants, data: st.DataObject) -> None:
    """R12, R47, R48: patterns, several entries with filters, and rights that change meanwhile."""
    program = Program(granted)
    for _ in range(data.draw(st.integers(4, 14))):
        who, queue = data.draw(st.sampled_from(PEOPLE)), data.draw(st.sampled_from(QUEUES))
        program.world.act_as(who)
        data.draw(st.sampled_from(STEPS))(program, who, queue, data)
        program.compare()
