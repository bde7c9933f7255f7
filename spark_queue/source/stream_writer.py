"""Publishing from Spark: executors stage message files, and one commit makes all of them visible, or none.

Executors load no more here than the staging of files; the commit's side is imported where Spark commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_queue.clock import SystemClock
from spark_queue.errors import CallerError
from spark_queue.source.partitions import join_small
from spark_queue.source.spark_versions import DataSourceStreamArrowWriter
from spark_queue.source.write_job import Staged, WriteJob

_QUERY_ID = "sql.streaming.queryId"

#: Spark's default place of checkpoints; tasks see the settings of the session as properties of their job.
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


class _Writer:
    """Base of both writers; a stream's is also given the number of the batch."""

    def __init__(self, job: WriteJob) -> None:
        self._job = job

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: ARG002 - Spark's signature.
        """Delete the staged files, as far as they are known and it is certain that no commit names them."""
        from spark_queue.source import committing

        committing.abort(self._job, messages)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """A DataFrame as one publish."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]  # As its base class does.
        """Stage the rows of a task."""
        return _stage(self._job, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the files of all tasks."""
        from spark_queue.source import committing

        committing.commit(self._job, messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Each micro-batch as one publish, which its repeat matches by the query and the batch's number."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]  # As its base class does.
        """Stage the rows of a task."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        if query_id is None and self._job.sequence_column is None:
            raise CallerError("PUBLISHER_IDENTITY_UNKNOWN", reason="Spark gives no query id here.")
        place = None if context is None else context.getLocalProperty(_CHECKPOINTS)
        default = f"{place}/{self._job.query_name}" if place and self._job.query_name else None
        return _stage(self._job, iterator, query_id=query_id, checkpoint=default)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the files of all tasks; a repeat of the batch publishes nothing."""
        from spark_queue.source import committing

        committing.commit(self._job, messages, batch=batchId)


def _stage(
    job: WriteJob, batches: Iterator[pa.RecordBatch], *, query_id: str | None = None, checkpoint: str | None = None
) -> Staged:
    from spark_queue.journal.staging import stage_file
    from spark_queue.journal.stored_rows import Sequences

    # Spark's record batches are small, and each would become a row group.
    rows = join_small(batches)
    first = next(rows, None)
    if first is None:
        return Staged(message_type=None, file=None, query_id=query_id, checkpoint=checkpoint)
    message_type = job.message_type or _type_of(job, first)
    numbers = None if job.publisher is None else Sequences(publisher=job.publisher, column=job.sequence_column)
    file = stage_file(job.plans[message_type], chain([first], rows), now_ms=SystemClock().wall_ms(), sequences=numbers)
    return Staged(message_type=message_type, file=file, query_id=query_id, checkpoint=checkpoint)


def _type_of(job: WriteJob, rows: pa.RecordBatch) -> str:
    """Return the message type of the first row's topic; the commit checks that all topics are of one type."""
    from spark_queue.core.definitions.column_names import ColumnNames
    from spark_queue.core.definitions.parsing import parse

    topics = rows.column(str(ColumnNames(rows.schema.names).find("topic"))).drop_null()
    if not len(topics):
        raise CallerError("TOPIC_MISSING", rows=rows.num_rows)
    return parse(job.definitions).route(str(topics[0]))[1].name
