"""One journal and the processes that open it, over each implementation of the ports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.message_files.segment import Segment
from spark_queue.journal.creation import create_journal
from spark_queue.journal.message_compaction import MergeLimits, merge
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.open import open_journal
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.journal.sql_types import INSTANT
from spark_queue.journal.store import Store
from spark_queue.ports import JournalPort
from tests.memory_journal import MemoryJournal, MemoryStorage
from tests.scenario.traits import PublishedMessage

DEFINITIONS: dict[str, Any] = {
    "message_types": {"json": {"topics": ["ORDERS", "RETURNS", "^DIRECT_[A-Z]+$"]}},
    "queues": {
        "ORDERS": {},
        "DIRECT": {"underlying_topic": "^DIRECT_[A-Z]+$", "default_publish_target": "DIRECT_A"},
        "ALL": {"underlying_topic": "^.*$", "default_publish_target": "ORDERS"},
    },
}


class World(Protocol):
    """What a contract test does with a journal."""

    definitions: Definitions
    journal_id: str

    def open(self) -> JournalPort:
        """Open the journal as one more process."""
        ...

    def publish(self, messages: Sequence[PublishedMessage]) -> None:
        """Publish messages of type json in one commit."""
        ...

    def merge(self, files: Sequence[Segment]) -> None:
        """Merge message files of type json as a coordinator does."""
        ...


class MemoryWorld:
    """In memory."""

    def __init__(self) -> None:
        self.definitions = parsing.parse(DEFINITIONS)
        self._storage = MemoryStorage(self.definitions)
        self.journal_id = self._storage.journal_id

    def open(self) -> JournalPort:
        return MemoryJournal(self._storage)

    def publish(self, messages: Sequence[PublishedMessage]) -> None:
        self._storage.publish("json", messages)

    def merge(self, files: Sequence[Segment]) -> None:
        self._storage.merge("json", files)


class DeltaWorld:
    """On disk."""

    def __init__(self, path: Path) -> None:
        self.definitions = parsing.parse(DEFINITIONS)
        self.store = Store(str(path))
        self.journal_id = create_journal(self.store, self.definitions)

    def open(self) -> JournalPort:
        return open_journal(self.store)

    def publish(self, messages: Sequence[PublishedMessage]) -> None:
        rows = pa.table(
            {
                "value": ["{}"] * len(messages),
                "topic": [message.topic for message in messages],
                "expires_at": pa.array(
                    [None if message.expires_at_ms is None else message.expires_at_ms * 1000 for message in messages], INSTANT
                ),
            }
        )
        plan = make_plan(self.store, self.definitions, message_type="json", topic=None, expires_after_ms=None)
        publish(plan, self.journal_id, self.definitions, rows)

    def merge(self, files: Sequence[Segment]) -> None:
        work = MessageTableWork(self.store, self.journal_id, "json", epoch=1, now_ms=0, is_durable=lambda: False)
        merge(work, files, MergeLimits(files_min=len(files)))
        for file in files:
            self.store.delete([f"{work.key}/{file.path}"])
