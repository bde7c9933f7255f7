"""A journal on disk with hours of history behind it, made by an engine in this process: what the page has to show."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from spark_queue import Journal
from spark_queue.core import commands, folds
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.definitions import parsing
from spark_queue.core.engine import Engine
from spark_queue.core.records import Outcome
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.creation import create_journal
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.open import open_journal
from spark_queue.journal.publisher import make_plan, publish
from tests.deciding import claim, leased, started

#: What must never become an element of a page, wherever it stands.
EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'"

DEFINITIONS: dict[str, Any] = {
    "message_types": {"order": {"columns": "item STRING, amount BIGINT", "topics": ["ORDERS", "RETURNS"]}},
    "queues": {
        "BILLING": {"underlying_topic": "ORDERS", "dead_letter_queue": "BILLING_FAILED", "max_deliveries": 3},
        "BILLING_FAILED": {"message_type": "order"},
        "SHIPPING": {"underlying_topic": "ORDERS", "filter": "amount > 3"},
        "REFUNDS": {"underlying_topic": "RETURNS"},
    },
}

MINUTE_MS = 60_000


class PastClock:
    """A clock that stands some hours ago."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class DashboardWorld:
    """A journal whose history begins `hours` ago; times are given in minutes from then."""

    def __init__(
        self, place: Path | str, *, name: str = "shop", hours: float = 3.0, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self.start_ms = time.time_ns() // 1_000_000 - int(hours * 60 * MINUTE_MS)
        self.journal = Journal(f"{place}/{name}", storage_options=storage_options)
        create_journal(self.journal.store, parsing.parse(DEFINITIONS), clock=PastClock(self.start_ms))
        self.opened = open_journal(self.journal.store)
        traits = PreparedTraits(self.opened.traits)
        self.engine = Engine(JournalState(traits))
        self._control = DeltaControlLog(self.journal.store)
        folds.fold_all(self.engine.state, self._control.load().records)
        claim(self.engine, epoch=1, host="h", address="a", pid=1, now_ms=self.start_ms)
        self._entrance = Sequencer(self.opened, self.engine, traits)
        self._planners: dict[str, dict[str, Any]] = {}
        self._finished: dict[str, int] = {}

    def at(self, minute: float) -> int:
        """Return a time in milliseconds."""
        return self.start_ms + int(minute * MINUTE_MS)

    def publish(self, count: int, minute: float, *, topic: str = "ORDERS", item: str = "kettle") -> None:
        """Publish rows in one commit, and let them enter."""
        rows = pa.Table.from_pylist([{"item": item, "amount": number % 10} for number in range(count)])
        now = self.engine.state.definitions
        plan = make_plan(self.journal.store, now, message_type="order", topic=topic, expires_after_ms=None)
        publish(plan, self.opened.journal_id, now, rows, clock=PastClock(self.at(minute)))
        self._entrance.admit("order", now_ms=self.at(minute))

    def attach(self, queue: str, subscription: str, minute: float, *, backlog: int = 1_000, **asks: Any) -> None:
        """Begin a subscription."""
        begun = started(self.engine, queue, subscription, max_backlog=backlog, now_ms=self.at(minute), **asks)
        self._planners[queue] = {**begun, "call": 1}

    def work(self, queue: str, limit: int, minute: float) -> None:
        """Prove the lease before, and take the next one."""
        planner = self._planners[queue]
        planner["call"] += 1
        poll = commands.Next(**planner, finished=self._finished.get(queue, 0), limit=limit)
        lease = leased(self.engine, poll, now_ms=self.at(minute))
        if lease is not None:
            self._finished[queue] = lease.number

    def expire(self, queue: str, bookmarks: range, error: str, minute: float) -> None:
        """Make dead letters by hand."""
        said = commands.OutcomeRows(outcome=Outcome.EXPIRE, ranges=tuple(to_ranges(BitMap64(bookmarks))), error=error)
        self.engine.decide(commands.Settle(queue=queue, outcomes=(said,)), now_ms=self.at(minute))

    def decide(self, command: Any, minute: float) -> Any:
        """Give the engine any command."""
        return self.engine.decide(command, now_ms=self.at(minute))

    def tick(self, minute: float) -> None:
        """Let time pass for leases."""
        self.engine.tick(now_ms=self.at(minute))

    def commit(self) -> None:
        """Write to disk what was recorded so far."""
        records = self.engine.drain_records()
        if records:
            self._control.append(records, epoch=1)


def busy_world(place: Path, *, name: str = "shop", hours: float = 3.0) -> DashboardWorld:
    """Return a journal with work, failures, a pause and a backlog, whose history begins some hours ago."""
    world = DashboardWorld(place, name=name, hours=hours)
    world.attach("BILLING", "east", 1)
    world.attach("SHIPPING", "west", 1)
    for minute in range(2, 178, 2):
        world.publish(20 + minute % 9 * (3 if 80 < minute < 110 else 1), minute)
        world.work("BILLING", 15 if 80 < minute < 120 else 40, minute + 0.5)
        if minute < 150:
            world.work("SHIPPING", 30, minute + 0.7)
        if minute % 20 == 0:
            # What east has in hand is not touched.
            waiting = sorted(world.engine.state.ledger("SHIPPING").entered)[-3:]
            world.expire("SHIPPING", range(waiting[0], waiting[0] + 1), "carrier says: no such address", minute + 0.8)
        world.commit()
    newest = world.engine.state.message_types["order"].entered_until
    world.publish(12, 177.2)
    world.expire("BILLING", range(newest, newest + 4), "card declined: 402 from the bank", 177.4)
    world.expire("BILLING", range(newest + 4, newest + 7), "timeout after 30 s at ledger.example:443", 177.6)
    world.publish(3, 178, topic="RETURNS", item="lamp")
    world.decide(commands.Pause(queue="REFUNDS"), 178.5)
    world.commit()
    return world
