"""A small journal on disk, and short ways to do things to it, for the tests of the journal package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from spark_queue.core.definitions import parsing
from spark_queue.core.records import Kind, Record
from spark_queue.journal import control_checkpoint
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.creation import create_journal
from spark_queue.journal.open import DeltaJournal, open_journal
from spark_queue.journal.publisher import Published, make_plan, publish
from spark_queue.journal.staging import StagingPlan
from spark_queue.journal.store import Store, log_key
from spark_queue.ports import Clock, ControlLog
from tests.records import record_of

DEFINITIONS: dict[str, Any] = {
    "message_types": {
        "order": {"columns": "id BIGINT, item STRING", "topics": ["ORDERS", "RETURNS", "QUOTES"]},
        "json": {"topics": ["EVENTS"]},
        "binary": {"topics": ["BLOBS"]},
    },
    "queues": {"WORK": {"underlying_topic": "^ORDERS|RETURNS$", "default_publish_target": "ORDERS"}},
}


class Disk:
    """One journal on disk."""

    def __init__(
        self, path: Path | str, *, storage_options: dict[str, str] | None = None, journal: dict[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.definitions = parsing.parse({**DEFINITIONS, "journal": journal or {}})
        self.store = Store(str(path), storage_options or {})
        self.journal_id = create_journal(self.store, self.definitions, clock=clock)

    def open(self) -> DeltaJournal:
        return open_journal(self.store)

    def plan(self, topic: str | None = "ORDERS", *, expires_after_ms: int | None = None) -> StagingPlan:
        return make_plan(self.store, self.definitions, message_type="order", topic=topic, expires_after_ms=expires_after_ms)

    def publish(self, ids: Sequence[int], *, topic: str = "ORDERS", **options: Any) -> Published:
        return publish(self.plan(topic), self.journal_id, self.definitions, orders(ids), **options)

    def stored(self) -> pa.Table:
        """Return the table of type order as any Delta reader sees it."""
        table = DeltaTable(self.store.messages_uri("order"), storage_options=dict(self.store.storage_options))
        return table.to_pyarrow_table()

    def ids(self) -> list[int]:
        """Return the ids that a Delta reader sees, sorted."""
        stored: list[Any] = self.stored().column("id").to_pylist()
        return sorted(stored)

    def tail_rows(self) -> int:
        """Return the number of rows that the message log tells of."""
        return sum(added.row_count for entry in self.open().messages("order").tail(-1) for added in entry.added)

    def go_away(self) -> None:
        """Take the journal from its place, as a volume that is no longer mounted."""
        place = Path(self.store.path)
        place.rename(place.with_name("away"))

    def be_away_during(self, write: Callable[[], object], table: str) -> None:
        """Let the journal be away while delta-rs writes into a table's log: what it wrote stands alone in a folder made anew."""
        before = self._log_files(table)
        write()
        landed = {path: path.read_bytes() for path in self._log_files(table) - before}
        for path in landed:
            path.unlink()
        self.go_away()
        for path, data in landed.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def come_back(self) -> None:
        """Put the journal where it was."""
        place = Path(self.store.path)
        place.with_name("away").rename(place)

    def _log_files(self, table: str) -> set[Path]:
        return set(self.log_path(table, 0).parent.iterdir())

    def log_path(self, table: str, version: int) -> Path:
        return Path(self.store.uri(log_key(table, version)))


def orders(ids: Sequence[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "item": [f"item {number}" for number in ids]})


def claim(control: ControlLog, epoch: int = 1) -> int:
    """Load and claim a reign; returns the number of the next record."""
    record = len(control.load().records)
    control.append(
        [record_of(kind=Kind.EPOCH_CLAIMED, record=record, epoch=epoch, at_ms=record, detail={"host": "h"})], epoch=epoch
    )
    return record + 1


def checkpoint(control: DeltaControlLog, *, epoch: int = 1, durable: bool = False) -> None:
    """Write a checkpoint as upkeep does: right after a flush."""
    control.flush(epoch=epoch, at_ms=0)
    control_checkpoint.write(control._store, control.table.as_entry(), durable=durable)


def left(record: int, epoch: int = 1) -> Record:
    """Return some record."""
    return record_of(kind=Kind.LEFT, record=record, epoch=epoch, at_ms=record, queue="WORK", subscription="s")
