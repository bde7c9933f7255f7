"""Replaying a topic, as a stream or as a batch: no leases, no acknowledgements (R8).

Views as batch reads: the planning side folds the control log; tasks hand rows on, and import pyarrow and no more for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from spark_queue.errors import JournalError
from spark_queue.source.partitions import MessageReader, PlanningReader, TopicOffset, cut
from spark_queue.source.spark_versions import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from spark_queue.settings.types import TopicBatchOptions, TopicStreamOptions, ViewOptions
    from spark_queue.source.topic_following import TopicFollower
    from spark_queue.source.topic_log import TopicLog


class TopicStreamReader(PlanningReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as a stream: an offset is the first bookmark that was not read yet.

    Parameters
    ----------
    options
        Where to start, and how to cut.
    first_offset
        The constant before the first batch.
    reader
        What executors run; the pickled form of this object is nothing else.
    """

    def __init__(self, options: TopicStreamOptions, *, first_offset: TopicOffset, reader: MessageReader) -> None:
        self._options = options
        self._first_offset = first_offset
        self._reader = reader
        self._log: TopicLog | None = None
        self._follower: TopicFollower | None = None
        self._available_now = False

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the topic: later messages wait for the next run."""
        self._available_now = True
        self._opened()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Read what is there."""
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch; a constant, because Spark asks again after a restart."""
        return self._first_offset.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002 - Spark's signature.
        """Return the end of the topic, or the very `start` where nothing is new, since Spark compares offsets as text."""
        offset = self._first_offset.check(start)
        log = self._opened()
        if not self._available_now:
            self._follower = self._follower or _follower_of(log, self._options, self._first_offset)
            self._follower.follow(offset.bookmark)
        return start if log.until <= offset.bookmark else replace(offset, bookmark=log.until).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the messages between two offsets, as far as they are not before the start that the options name."""
        first, until = self._first_offset.check(start).bookmark, self._first_offset.check(end).bookmark
        starting = self._options.starting
        if starting.kind == "latest" and first < 0:
            return []
        log = self._opened()
        lowest = 0 if starting.kind == "latest" else log.bookmark(starting)
        return cut(log.pieces(max(first, lowest), until), min_partitions=self._options.min_partitions)

    def _opened(self) -> TopicLog:
        self._log = self._log or _open_log(self._options, self._first_offset)
        return self._log


class TopicBatchReader(PlanningReader, DataSourceReader):
    """A range of a topic as a batch; see `TopicStreamReader`."""

    def __init__(self, options: TopicBatchOptions, offset: TopicOffset, *, reader: MessageReader) -> None:
        self._options = options
        self._offset = offset
        self._reader = reader

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the messages between the two positions, as the log stands now."""
        log = _open_log(self._options, self._offset)
        pieces = log.pieces(log.bookmark(self._options.starting), log.bookmark(self._options.ending))
        return cut(pieces, min_partitions=self._options.min_partitions)


def _open_log(options: TopicStreamOptions, offset: TopicOffset) -> TopicLog:
    # Only here, where a read is planned: a reader that is made to be pickled reads no log.
    from spark_queue.journal.store import Store
    from spark_queue.source.topic_log import TopicLog

    store = Store(options.journal, options.storage)
    return TopicLog(store, offset.journal, offset.message_type, offset.topic, fail_on_data_loss=options.fail_on_data_loss)


def _follower_of(log: TopicLog, options: TopicStreamOptions, offset: TopicOffset) -> TopicFollower:
    # Only a stream that goes on waits for messages; what asks a coordinator for them takes a while to import.
    from spark_queue.journal.store import Store
    from spark_queue.protocol.connection import Endpoint
    from spark_queue.source.topic_following import TopicFollower

    store, endpoint = Store(options.journal, options.storage), Endpoint(options.coordinator, options.token_file)
    return TopicFollower(log, store, offset.journal, endpoint=endpoint)


#: Most rows of a partition.
PARTITION_ROWS = 50_000


class TablePartition(InputPartition):
    """Some rows of a table."""

    def __init__(self, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        # An Arrow stream holds these rows only, where a pickled slice would carry the whole table along.
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        super().__init__(sink.getvalue().to_pybytes())


@dataclass(frozen=True, slots=True)
class TableReader:
    """Gives the rows of such partitions in exactly the schema that Spark asked for."""

    schema: pa.Schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, by column name."""
        if not isinstance(partition, TablePartition):
            # Spark plans one empty partition where there is none.
            return iter(())
        rows = pa.ipc.open_stream(partition.value).read_all()
        return iter(rows.select(self.schema.names).cast(self.schema).to_batches())


class ViewReader(DataSourceReader):
    """One view of a journal, as it is when Spark plans the read.

    Parameters
    ----------
    options
        Which view, of which queue and moment.
    journal_id
        Which journal is meant.
    schema
        What Spark expects of every record batch.
    """

    def __init__(self, options: ViewOptions, journal_id: str, *, schema: pa.Schema) -> None:
        self._options = options
        self._journal_id = journal_id
        self._schema = schema

    def __reduce__(self) -> tuple[Any, ...]:
        return TableReader, (self._schema,)

    def partitions(self) -> list[InputPartition]:
        """Read the view and cut it."""
        from spark_queue.journal.open import open_journal
        from spark_queue.journal.store import Store
        from spark_queue.views import read_view, state_at

        journal = open_journal(Store(self._options.journal, self._options.storage))
        if journal.journal_id != self._journal_id:
            raise JournalError("JOURNAL_MISMATCH", expected=self._journal_id, path=journal.path, found=journal.journal_id)
        table = read_view(state_at(journal, self._options.as_of), self._options.view, self._options.queue)
        return [TablePartition(table.slice(row, PARTITION_ROWS)) for row in range(0, table.num_rows, PARTITION_ROWS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition; executors run the same of `TableReader`."""
        return TableReader(self._schema).read(partition)
