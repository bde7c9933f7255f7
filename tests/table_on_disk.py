"""A journal with a queue over a real Delta table, its coordinator's work by a clock of its own, and what people do to the table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from spark_queue.clock import SystemClock
from spark_queue.coordinator.commands import Commands
from spark_queue.core import commands, folds
from spark_queue.core.definitions import parsing
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import SparkQueueError
from spark_queue.journal.creation import create_journal
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.open import open_journal
from spark_queue.journal.schema import schema_of
from spark_queue.journal.store import Store
from spark_queue.verification.state_digest import digest
from spark_queue.views.bodies import read_bodies
from tests.deciding import claim, leased, started

DAY_MS = 86_400_000
LEASE_MS = 60_000


class TableWorld:
    """Table orders (id, item, country), and queue WORK over it; the table's commits have the real time, and so begins the clock.

    Parameters
    ----------
    home : Path
        Where the table and the journal are.
    type_keys, queue : Mapping
        Further keys of message type orders, and of queue WORK.
    """

    def __init__(self, home: Path, *, type_keys: dict[str, Any] | None = None, partition_by: list[str] | None = None, **queue: Any):
        self.table, self.partition_by = str(home / "lake" / "orders"), partition_by
        self.store = Store(str(home / "journal"))
        self.append(90, 3)
        keys = {"table": self.table, "on_change": "keep", **(type_keys or {})}
        work = {"underlying_topic": "orders", "lease_period": "60s", **queue}
        queues = {"WORK": work}
        if "dead_letter_queue" in queue:
            queues["FAILED"] = {"message_type": "orders"}
        self.definitions: dict[str, Any] = {"message_types": {"orders": keys}, "queues": queues}
        self.create()
        self.now_ms = SystemClock().wall_ms() + 1
        self.epoch = 0
        self._calls = 0
        self.begin()

    def create(self) -> None:
        """Make the journal."""
        create_journal(self.store, parsing.parse(self.definitions))
        self.definitions = dict(open_journal(self.store).definitions().stored)

    # What people do to the table.

    def append(self, first: int, count: int) -> None:
        ids = list(range(first, first + count))
        rows: dict[str, Any] = {
            "id": pa.array(ids, pa.int64()),
            "item": [f"item {each}" for each in ids],
            "country": ["NL"] * count,
        }
        write_deltalake(self.table, pa.table(rows), mode="append", partition_by=self.partition_by)

    def optimize(self) -> None:
        DeltaTable(self.table).optimize.compact()

    def delete(self, where: str) -> None:
        DeltaTable(self.table).delete(where)

    def vacuum(self) -> None:
        """Delete every file that the table has removed."""
        DeltaTable(self.table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def drop(self) -> None:
        shutil.rmtree(self.table)

    # What a coordinator does.

    def begin(self) -> None:
        """Let another coordinator begin its reign: it folds the log anew."""
        self.epoch += 1
        self.journal = open_journal(self.store, limits=MessageLimits())
        traits = PreparedTraits(self.journal.traits)
        self.state = JournalState(traits)
        folds.fold_all(self.state, self.journal.control.load().records)
        self.engine = Engine(self.state)
        claim(self.engine, epoch=self.epoch, now_ms=self.now_ms)
        self.entrance = Sequencer(self.journal, self.engine, traits)
        self.entrance.recover()
        self.engine.take_over(now_ms=self.now_ms)
        self.commit()

    def commit(self) -> None:
        records = self.engine.drain_records()
        if records:
            self.journal.control.append(records, epoch=self.epoch)

    def enter(self) -> SparkQueueError | None:
        """Read the table's log on; returns what keeps it from being read further."""
        while self.entrance.admit("orders", now_ms=self.now_ms):
            continue
        self.commit()
        return self.entrance.trouble.get("orders")

    def upkeep(self) -> None:
        """Do what upkeep finds to do, and record it, until there is no more."""
        for _ in range(20):
            self.journal.upkeep(epoch=self.epoch, state=self.state, now_ms=self.now_ms)
            self.journal._upkeep.finish()
            found = self.journal.upkeep(epoch=self.epoch, state=self.state, now_ms=self.now_ms)
            if not found:
                return
            self.engine.take_files(found, now_ms=self.now_ms)
            self.commit()
        raise AssertionError("upkeep finds no end")

    def tick(self) -> None:
        self.engine.tick(now_ms=self.now_ms)
        self.commit()

    def wait(self, *, days: float = 0, ms: int = 0) -> None:
        """Let time pass, and have done what is due then."""
        self.now_ms += int(days * DAY_MS) + ms
        self.tick()
        self.upkeep()
        self.tick()

    # What a consumer does.

    def take(self, limit: int = 100, *, queue: str = "WORK", ack_mode: str = "auto") -> Lease | None:
        """Lease messages as a batch."""
        self._planner = started(self.engine, queue, "s", max_backlog=1_000, ack_mode=ack_mode, now_ms=self.now_ms)
        lease = leased(self.engine, commands.Next(**self._planner, call=2, finished=0, limit=limit), now_ms=self.now_ms)
        self.commit()
        return lease

    def prove(self, lease: Lease) -> None:
        """Acknowledge a batch."""
        self.engine.decide(commands.Next(**self._planner, call=3, finished=lease.number, limit=0), now_ms=self.now_ms)
        self.commit()

    def apply(self, *, journal: dict[str, Any] | None = None, **queues: dict[str, Any]) -> None:
        """Change settings of the journal, and add queues."""
        changed = {**self.definitions, "queues": {**self.definitions["queues"], **queues}}
        self.definitions = changed if journal is None else {**changed, "journal": journal}
        self.decide(commands.Apply, definitions=self.definitions)

    def decide(self, kind: type[commands.AnyCommand], **fields: Any) -> Any:
        """Have a command carried out as a coordinator does, with its looks at the table."""
        self._calls += 1
        answer = Commands(self.engine, self.journal, {}).run(kind(request=f"r{self._calls}", **fields), now_ms=self.now_ms)
        self.commit()
        return None if answer is None else answer.reply

    # What there is.

    @property
    def known(self) -> MessageTypeState:
        return self.state.message_types["orders"]

    @property
    def queue(self) -> QueueLedger:
        return self.state.queues["WORK"]

    def segment(self, bookmark: int) -> Segment:
        return self.known.segment_of(bookmark)

    def rows(self, state: State, queue: str = "WORK") -> list[int]:
        return list(self.state.queues[queue].rows[state])

    def ids(self, rows: list[int]) -> list[int]:
        """Return the ids of messages, as views read them."""
        schema = schema_of(pa.field("id", pa.int64()), pa.field("country", pa.string()), pa.field("sequence", pa.int64()))
        found = read_bodies(self.store, self.known, np.array(rows, dtype=np.int64), schema)
        assert found.column("country").to_pylist() == ["NL"] * len(rows)
        assert found.column("sequence").to_pylist() == rows
        ids: list[Any] = found.column("id").to_pylist()
        return ids

    def records(self, *kinds: Kind) -> list[Record]:
        return [record for record in self.journal.records() if record.kind in kinds]

    def folded_anew(self) -> Any:
        """Return the digest of the state as the log alone gives it, which must be that of the reign."""
        state = JournalState(self.journal.traits)
        folds.fold_all(state, self.journal.records())
        return digest(state)
