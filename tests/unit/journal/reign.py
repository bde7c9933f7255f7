"""What a coordinator does with message files, without its calls, for the tests of merging, retention and leftovers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.core import commands, folds
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.message_compaction import MergeLimits
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.open import open_journal
from spark_queue.journal.schema import schema_of
from spark_queue.views.bodies import read_bodies
from tests.deciding import claim, leased, started
from tests.unit.journal.journal_on_disk import Disk

NOW_MS = SystemClock().wall_ms()
SMALL = MergeLimits(files_min=4, files_due=4, target_bytes=1_000_000)
NO_MERGING = MergeLimits(files_due=1_000)


class Reign:
    """What a coordinator does with message files, without its calls."""

    def __init__(self, disk: Disk, *, epoch: int, limits: MessageLimits = MessageLimits(merging=SMALL)) -> None:  # noqa: B008 - frozen
        self.journal = open_journal(disk.store, limits=limits)
        self.epoch = epoch
        traits = PreparedTraits(self.journal.traits)
        self.state = JournalState(traits)
        folds.fold_all(self.state, self.journal.control.load().records)
        self.engine = Engine(self.state)
        claim(self.engine, epoch=epoch, host="h", address="a", pid=1, now_ms=NOW_MS)
        self.entrance = Sequencer(self.journal, self.engine, traits)
        self.entrance.recover()
        self.commit()

    def commit(self) -> None:
        self.journal.control.append(self.engine.drain_records(), epoch=self.epoch)

    def enter(self) -> None:
        """Read the message log, and commit what it says."""
        self.entrance.admit("order", now_ms=NOW_MS)
        assert not self.entrance.trouble, self.entrance.trouble
        records = self.engine.drain_records()
        if records:
            self.journal.control.append(records, epoch=self.epoch)

    def upkeep(self, now_ms: int = NOW_MS) -> None:
        self.journal.upkeep(epoch=self.epoch, state=self.state, now_ms=now_ms)
        self.journal._upkeep.finish()

    def tick(self, now_ms: int) -> None:
        """Do what is due, and commit it."""
        self.engine.tick(now_ms=now_ms)
        records = self.engine.drain_records()
        if records:
            self.journal.control.append(records, epoch=self.epoch)

    def subscribe(self, filter_sql: str) -> None:
        """Let a planner attach to queue WORK that wants what matches a filter."""
        started(self.engine, "WORK", "s", max_backlog=10, filter_sql=filter_sql, now_ms=NOW_MS)
        self.commit()

    def consume(self, limit: int) -> None:
        """Take the oldest messages out of queue WORK."""
        planner = started(self.engine, "WORK", "s", max_backlog=1000, now_ms=NOW_MS)
        lease = leased(self.engine, commands.Next(**planner, call=2, finished=0, limit=limit), now_ms=NOW_MS)
        assert lease is not None
        self.engine.decide(commands.Next(**planner, call=3, finished=lease.number, limit=0), now_ms=NOW_MS)
        self.commit()

    @property
    def segments(self) -> list[Segment]:
        return self.state.message_types["order"].segments


def publish_some(disk: Disk, count: int, *, rows: int = 3, first: int = 0) -> None:
    for number in range(first, first + count):
        disk.publish([number * rows + row for row in range(rows)], topic=["ORDERS", "RETURNS", "QUOTES"][number % 3])


def bodies(reign: Reign, disk: Disk) -> list[Any]:
    """Return id and item of every entered message, in the order of bookmarks."""
    state = reign.state.message_types["order"]
    schema = schema_of(pa.field("id", pa.int64()), pa.field("item", pa.string()), pa.field("topic", pa.string()))
    return read_bodies(disk.store, state, np.arange(state.entered_until), schema).to_pylist()
