"""A topic of the same journal as a sink: the rows of a batch become messages by the commit that acknowledges it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.core.definitions.definition import Definitions
from spark_queue.errors import CallerError, JournalError
from spark_queue.journal.commit import KnownLog, Transaction
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.log_entry import DEFINITIONS_TXN
from spark_queue.journal.publisher import Identity, commit_staged, make_plan, open_head
from spark_queue.journal.reader import open_with_definitions
from spark_queue.journal.staging import StagedFile, StagingPlan, stage_file
from spark_queue.journal.store import MESSAGES, Store, messages_key
from spark_queue.journal.transaction import commit_transaction
from spark_queue.sinks.sink import Landing, Sink, fate_of
from spark_queue.sinks.table import SinkTable

#: The columns of a message's envelope; a message that is made of another one has its own.
_ENVELOPE = frozenset({"topic", "publisher", "sequence", "published_at", "expires_at"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The plan by which a batch is staged as messages; picklable."""

    staging: StagingPlan

    def stage(self, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a task's rows to a message file, and yield the file, as JSON; `names` are those of the rows' columns."""
        rows = (batch.rename_columns(list(names)) for batch in batches)
        file = stage_file(self.staging, rows, now_ms=SystemClock().wall_ms())
        texts = [] if file is None else [msgspec.json.encode(file).decode()]
        yield pa.RecordBatch.from_pydict({"file": pa.array(texts, pa.string())})


class SinkTopic(Sink):
    """The log of a message type, to which the messages of a topic are appended; without `topic` it only decides attempts."""

    staged_type = StagedFile

    def __init__(self, store: Store, journal_id: str, message_type: str, topic: str | None = None) -> None:
        self._store = store
        self._journal_id = journal_id
        self._topic = topic
        self.message_type = message_type
        self._head: DeltaHead | None = None
        #: The definitions that were read last, with the number of their record.
        self._known: tuple[int, Definitions] | None = None

    @property
    def name(self) -> str:
        """The log's place in the journal, wherever that lies."""
        return messages_key(self.message_type)

    def check(self) -> StagingPlan:
        """Refuse a topic that is not, or no longer, one of the message type."""
        definitions = self._definitions_now()
        plan = make_plan(self._store, definitions, message_type=self.message_type, topic=self._topic, expires_after_ms=None)
        found = definitions.route(str(self._topic))[1].name
        if found != self.message_type:
            raise CallerError("TOPIC_OF_OTHER_TYPE", topic=self._topic, found=found, message_type=self.message_type)
        # Rows of a batch function have the names of messages already; names of rows from outside mean nothing there.
        return replace(plan, shape=replace(plan.shape, rename=()))

    def taken(self, columns: Sequence[str]) -> list[str]:
        """Return those that the message type has."""
        known = ColumnNames([name for name in self.check().shape.schema.names if name not in _ENVELOPE])
        return [name for name in columns if known.find(name) is not None]

    def plan(
        self,
        columns: Sequence[Mapping[str, Any]],
        *,
        partition_by: Sequence[str] | None = None,  # noqa: ARG002 - as a table's.
        merges_schema: bool = False,  # noqa: ARG002 - as a table's.
    ) -> TopicPlan:
        """Return the plan by which rows become messages; UNKNOWN_COLUMN where the message type lacks one of the columns."""
        staging = self.check()
        names = [str(column["name"]) for column in columns]
        staging.shape.declared(names)
        if not names:
            reason = f"they have no column of message type '{self.message_type}'."
            raise CallerError("SINK_SCHEMA_DIFFERS", table=self.name, reason=reason, next_step="Return rows that have one.")
        return TopicPlan(staging=staging)

    def id(self) -> str:
        """Return the id of the log's own metadata."""
        return str((self._head or self._look()).table.metadata().id)

    def transaction_version(self, transaction: str, *, plan: TopicPlan | None = None) -> int:  # noqa: ARG002 - it looks each time.
        """Read the log for the newest version of a transaction id."""
        with self._failures():
            found = self._look().transaction_version(transaction)
        return -1 if found is None else int(found)

    def append(self, plan: TopicPlan, files: Sequence[StagedFile], *, transaction: str, attempt: int) -> Landing:
        """Publish the messages under the attempt's number, or find that it is decided already."""
        version: int | None = None
        if files:
            definitions = self._definitions_now()
            with self._failures():
                identity = Identity(transaction=Transaction(name=transaction, number=2 * attempt))
                known = KnownLog(head=self._look())
                published = commit_staged(plan.staging, self._journal_id, definitions, files, identity=identity, known=known)
            version = published.version if published.rows else None
        # Without rows it is a commit all the same.
        return self._decide(transaction, attempt, 2 * attempt, version)

    def fence(self, *, transaction: str, attempt: int) -> Landing:
        """Commit the fence as a transaction without messages."""
        return self._decide(transaction, attempt, 2 * attempt + 1)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Delete staged message files."""
        self._store.delete(f"{self.name}/{file.path}" for file in files)

    def _decide(self, transaction: str, attempt: int, version: int, landed_in: int | None = None) -> Landing:
        with self._failures():
            found = commit_transaction(
                self._store, self.name, self._look(), name=transaction,
                version=lambda found: version if found < 2 * attempt else None, writer="sink",
                at_ms=SystemClock().wall_ms(), durable=self._definitions_now().journal.durable,
            )  # fmt: skip
        return Landing(fate_of(found, attempt), landed_in)

    def _definitions_now(self) -> Definitions:
        """Return the definitions that the log names at its head, which are read anew only where it names others."""
        with self._failures():
            newest = self._look().transaction_version(DEFINITIONS_TXN)
        if self._known is None or (newest is not None and newest > self._known[0]):
            _, self._known = open_with_definitions(self._store)
        return self._known[1]

    def _look(self) -> DeltaHead:
        """Return the head of the log as it is now; it is opened where it is not known."""
        if self._head is None or not self._head.read_on():
            self._head = open_head(self._store, self._journal_id, self.message_type)
        return self._head

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except JournalError as reason:
            raise JournalError("SINK_FAILED", table=self.name, reason=reason.reason) from None


def sink_at(store: Store, journal_id: str, name: str, storage_options: Mapping[str, str] | None = None) -> Sink:
    """Return the sink by its name in a journal's log; `storage_options` are for a table elsewhere, by default the journal's."""
    folder, _, message_type = name.partition("/")
    if folder == MESSAGES and message_type:
        return SinkTopic(store, journal_id, message_type)
    return SinkTable(name, store.storage_options if storage_options is None else storage_options)
