"""The wrapper that appends batches to a sink by the commit that acknowledges them (R123 to R127, DESIGN 19)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it.
from pyspark.sql.utils import is_remote

from spark_queue.client.rights import check_writes
from spark_queue.core import commands, replies
from spark_queue.core.commands import OutcomeRows
from spark_queue.core.definitions.definition import Definitions, MessageTypeDefinition, QueueDefinition
from spark_queue.core.records import Outcome
from spark_queue.errors import CallerError, ConfigError, JournalError, LeaseError, SparkQueueError
from spark_queue.journal.catalog import location_of
from spark_queue.journal.folder import of_table
from spark_queue.journal.reader import open_with_definitions
from spark_queue.journal.store import Store
from spark_queue.sinks.sink import Fate, Landing, Sink, transaction_id
from spark_queue.sinks.table import SinkTable
from spark_queue.sinks.topic import SinkTopic, sink_at
from spark_queue.source.far_checkpoint import warn_of_far_checkpoint
from spark_queue.source.foreach_batch import BatchFunction, BatchWrapper
from spark_queue.source.run_reporter import RunReporter
from spark_queue.source.spark_table import MergeFunction, SparkTable

#: The writers of a table: tasks and delta-rs, or Spark's own Delta.
DIRECT = "direct"
SPARK = "spark"

_log = logging.getLogger(__name__)


class SinkWrapper(BatchWrapper):
    """The function for ``writeStream.foreachBatch`` of `Queue.into`, with its arguments; others go to `BatchWrapper`."""

    def __init__(
        self,
        fn: BatchFunction | None,
        *,
        table: str | None,
        storage_options: Mapping[str, str] | None,
        topic: str | None = None,
        partition_by: Sequence[str] | None = None,
        merge_schema: bool = False,
        writer: str = DIRECT,
        merge: MergeFunction | None = None,
        single_driver: bool = False,
        on_barrier: BatchFunction | None = None,
        **given: Any,
    ) -> None:
        if (table is None) == (topic is None):
            raise ConfigError("BAD_VALUE", key="table", where="into", value=table, expected="a table or a topic, one of both")
        if writer not in (DIRECT, SPARK):
            raise ConfigError("BAD_VALUE", key="writer", where="into", value=writer, expected=f'"{DIRECT}" or "{SPARK}"')
        of_append = {"partition_by": partition_by, "merge_schema": merge_schema or None}
        if topic is not None:
            of_table = {**of_append, "storage_options": storage_options, "writer": None if writer == DIRECT else writer}
            _refuse({**of_table, "merge": merge, "single_driver": single_driver or None}, "nothing beside a topic")
        if writer != SPARK:
            _refuse({"merge": merge, "single_driver": single_driver or None}, f'nothing without writer="{SPARK}"')
        if is_remote():
            _refuse({"merge": merge}, "nothing with Spark Connect")
        if merge is not None:
            _refuse(of_append, "nothing beside merge")
        table = None if table is None else location_of(table, where="into")
        super().__init__(fn or _as_it_is, on_barrier=on_barrier or _as_it_is, **given)
        self._where = (table, dict(self._store.storage_options if storage_options is None else storage_options))
        self._topic = topic
        self._partition_by = partition_by
        self._merge_schema = merge_schema
        self._writer = writer
        self._merge = merge
        self._single_driver = single_driver
        self._opened: Sink | None = None
        self._beside: ThreadPoolExecutor | None = None
        #: Whether the batch of this run has landed, which is all that there is to say of its end.
        self._has_landed = False
        journal, (_, definitions) = open_with_definitions(self._store)
        self._journal = None if topic is None else journal
        queue = definitions.queue(self._queue)
        _refuse_at_most_once(queue)
        sink = self._sink()
        if isinstance(sink, SinkTable):
            sink.refuse_inside(self._store)
            _refuse_source(sink, self._store, queue, definitions.message_type(queue.message_type))
        self._check_writes(definitions)
        sink.check()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_opened": None, "_beside": None}

    def _sink(self) -> Sink:
        if self._opened is None:
            table, options = self._where
            if self._journal is not None:
                message_type = self._journal.definitions().route(str(self._topic))[1].name
                self._opened = SinkTopic(self._store, self._journal.journal_id, message_type, self._topic)
            else:
                assert table is not None, "a sink is a table or a topic"
                if self._writer == SPARK:
                    self._opened = SparkTable(table, options, self._merge, single_driver=self._single_driver)
                else:
                    self._opened = SinkTable(table, options)
        return self._opened

    def _check_writes(self, definitions: Definitions) -> None:
        """Refuse a topic that this caller may not publish to."""
        if self._journal is not None and definitions.principals:
            check_writes(definitions, [str(self._topic)], partial(self._endpoint.token, self._store))

    def _start(self, reporter: RunReporter) -> replies.RunStarted:
        """Report the start of a run, once every attempt in doubt is decided that may be decided here."""
        self._has_landed = False
        looking = self._while_speaking(self._sink().look_ahead)
        started = reporter.start(sink=True)
        looking.result()
        told = cast(replies.SinkTold, started.sink)
        for attempt in filter(self._is_here, told.others):
            try:
                self._decide(reporter, attempt)
            except SparkQueueError as reason:
                # Its own stream, or an operator, decides it; this one's batch has nothing to do with it.
                _log.warning("attempt %d of subscription '%s' stays in doubt: %s", attempt.attempt, attempt.subscription, reason)
        if told.own is None:
            return started
        self._decide(reporter, told.own)
        return reporter.start(sink=True)

    def _while_speaking(self, act: Callable[[], None]) -> Future[None]:
        """Do something of this batch beside the calls of its run; each waits for a store, and neither for the other."""
        self._beside = self._beside or ThreadPoolExecutor(1, thread_name_prefix="sparkqueue-into")
        return self._beside.submit(act)

    def _end(self, reporter: RunReporter, run: replies.Run, outcomes: tuple[OutcomeRows, ...]) -> None:
        if self._has_landed:
            reporter.await_proof(run)
        else:
            super()._end(reporter, run, outcomes)

    def _meet(self, session: SparkSession, query_id: str) -> None:
        """Tell of a checkpoint that costs more than its batches."""
        warn_of_far_checkpoint(session, query_id)

    def _is_here(self, attempt: replies.AttemptTold) -> bool:
        """Return whether another subscription's attempt is at the table of this one, which alone it may look at."""
        return attempt.table == self._sink().name

    def _decide(self, reporter: RunReporter, attempt: replies.AttemptTold) -> None:
        """Find out the fate of an attempt, and report it (R125)."""
        who: dict[str, Any] = {"subscription": attempt.subscription, "attempt": attempt.attempt}
        sink = self._sink()
        try:
            if attempt.table != sink.name:
                # It was prepared before the stream was given another sink.
                sink = sink_at(self._store, reporter.journal_id, attempt.table, self._where[1])
            landing = sink.decide(attempt, journal_id=reporter.journal_id, queue=self._queue)
        except SparkQueueError as reason:
            reporter.say(commands.SinkUnreadable, **who, error=reason.reason, read=reason.code == "SINK_UNFENCED")
            raise
        _say(reporter, landing, **who)

    def _work(self, reporter: RunReporter, started: replies.RunStarted, batch: DataFrame, batch_id: int) -> tuple[OutcomeRows, ...]:
        told = cast(replies.SinkTold, started.sink)
        if started.is_barrier:
            return super()._work(reporter, started, batch, batch_id)
        if not started.messages:
            # No attempt could show whether such a batch stands in the sink already: it has no lease.
            reason = (
                "the batch has no new messages, but rows from the state of its query, which cannot be appended with an "
                "acknowledgement."
            )
            next_step = "Use `foreach_batch` with a sink that takes each row once, or return each message's rows with its batch."
            raise CallerError("OUTCOME_INVALID", queue=self._queue, reason=reason, next_step=next_step)
        if not told.messages:
            # It landed in an earlier run.
            return ()
        if self._journal is not None:
            # They may have changed since the last batch.
            self._check_writes(self._journal.definitions())
        rows, outcomes = self._rows(self._call(self._fn, batch, batch_id), batch)
        fields: list[dict[str, Any]] = rows.schema.jsonValue()["fields"]
        plan = self._sink().plan(fields, partition_by=self._partition_by, merges_schema=self._merge_schema)
        files = self._sink().stage(rows, plan, batch.sparkSession, messages=told.messages)
        self._append(reporter, started.run, plan, files, outcomes)
        return ()

    def _rows(self, returned: Any, batch: DataFrame) -> tuple[DataFrame, tuple[OutcomeRows, ...]]:
        """Return the rows to append, and the outcomes of messages that are not appended."""
        rows, exceptions = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
        if rows is not None and not isinstance(rows, DataFrame):
            reason = f"fn returned {type(rows).__name__}."
            next_step = "Return a DataFrame to append, or that and a table of exceptions, or None for the batch as it is."
            raise CallerError("OUTCOME_INVALID", queue=self._queue, reason=reason, next_step=next_step)
        outcomes = self._outcomes(exceptions, batch)
        if rows is None:
            kept_out = (each for each in outcomes if exceptions is not None and each.outcome != Outcome.ACKNOWLEDGE)
            rows = _without(batch, [(first, until - 1) for each in kept_out for first, until in each.ranges])
            rows = rows.select(*(f"`{name.replace('`', '``')}`" for name in self._sink().taken(batch.columns)))
        return rows, outcomes

    def _append(
        self,
        reporter: RunReporter,
        run: replies.Run,
        plan: Any,
        files: Sequence[Any],
        outcomes: tuple[OutcomeRows, ...],
    ) -> None:
        """Make the files and the acknowledgement of the batch one commit (R123)."""
        sink = self._sink()
        transaction = transaction_id(reporter.journal_id, self._queue, self._subscription)
        try:
            newest = sink.transaction_version(transaction, plan=plan)
            asked: dict[str, Any] = {"run": run, "table": sink.name, "table_id": sink.id(), "outcomes": outcomes}
            confirming = self._while_speaking(partial(sink.confirm, plan))
            prepared: replies.Prepared = reporter.say(commands.Prepare, **asked, transaction_version=newest)
            confirming.result()
        except SparkQueueError:
            # No commit names them, nor ever will.
            sink.discard(files)
            raise
        attempt = prepared.attempt
        try:
            landing = sink.append(plan, files, transaction=transaction, attempt=attempt)
        except JournalError:
            # Its run is over. The next one finds out.
            raise
        except Exception:
            # The failure is raised again, unless the batch has landed all the same.
            landing = sink.fence(transaction=transaction, attempt=attempt)
            if landing.fate is Fate.FENCED:
                _say(reporter, landing, attempt=attempt)
                sink.discard(files)
                raise
        # Before Spark commits the batch: nobody would look for one that it has done.
        _say(reporter, landing, attempt=attempt)
        self._has_landed = landing.fate is Fate.LANDED
        if landing.fate is Fate.LANDED and isinstance(sink, SinkTopic):
            reporter.nudge(sink.message_type, landing.version)
        if landing.fate is Fate.FENCED:
            sink.discard(files)
            facts = {"attempt": attempt, "subscription": self._subscription, "queue": self._queue}
            raise LeaseError("SINK_FENCED", **facts)


def _refuse_at_most_once(queue: QueueDefinition) -> None:
    """Refuse a queue whose messages leave it as they are granted: they would be gone with the first batch, which is refused."""
    if queue.at_most_once:
        what, reason = f"Appending batches of queue '{queue.name}' to a sink", "it delivers at most once, and acknowledges nothing."
        raise CallerError("UNSUPPORTED_WRITE", what=what, reason=reason, next_step="Use foreach_batch there.")


def _refuse_source(sink: SinkTable, store: Store, queue: QueueDefinition, message_type: MessageTypeDefinition) -> None:
    """Refuse the table that the queue's own messages come from: each batch would bring the next."""
    if message_type.table is not None and of_table(store, message_type.table).uri == sink.name:
        raise ConfigError("SINK_IS_SOURCE", table=sink.name, message_type=message_type.name, queue=queue.name)


def _refuse(given: Mapping[str, Any], expected: str) -> None:
    for key, value in given.items():
        if value is not None:
            raise ConfigError("BAD_VALUE", key=key, where="into", value=value, expected=expected)


def _say(reporter: RunReporter, landing: Landing, **who: Any) -> None:
    if landing.fate is Fate.LANDED:
        reporter.say(commands.Landed, **who, table_version=landing.version)
    else:
        reporter.say(commands.Fenced, **who)


def _without(batch: DataFrame, ranges: list[tuple[int, int]]) -> DataFrame:
    """Leave out messages by their bookmarks, by a join: a condition could not hold any number of them."""
    if not ranges:
        return batch
    named = batch.sparkSession.createDataFrame(ranges, "first BIGINT, last BIGINT")
    out = named.select(F.explode(F.sequence("first", "last")).alias("left_out"))
    return batch.join(F.broadcast(out), batch["bookmark"] == out["left_out"], "left_anti")


def _as_it_is(_batch: DataFrame, _batch_id: int) -> None:
    """Leave a batch as it is."""
