"""The wrapper around a user's batch function: it reports the start and the end of fn before Spark gets control back."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_queue import tracing
from spark_queue.client.outcome_table import evaluated, outcome_columns, read_outcomes
from spark_queue.core import replies
from spark_queue.core.commands import OutcomeRows
from spark_queue.errors import CallerError, ConfigError, SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.source.proof_listener import ProofListener
from spark_queue.source.run_ends import QUERY_ID, RunEnd, end_of
from spark_queue.source.run_reporter import RunReporter

_log = logging.getLogger(__name__)

#: The beginnings of the lines of a stack of Java.
_OF_STACKS = ("\tat ", "\t... ")

#: The user's function of a micro-batch. It may return a table of the exceptions among its rows, of Spark or pandas.
BatchFunction = Callable[[DataFrame, int], Any]

FAIL = "fail"
CANCEL = "cancel"


class BatchWrapper:
    """The function for ``writeStream.foreachBatch``; its pickled form holds no connection (DESIGN 7, P4 and P6).

    `on_error` and `ack_early` are those of `Queue.foreach_batch`; without `on_barrier` fn gets barriers, too.
    """

    def __init__(
        self,
        fn: BatchFunction,
        *,
        on_barrier: BatchFunction | None = None,
        store: Store,
        endpoint: Endpoint,
        queue: str,
        subscription: str,
        on_error: str = FAIL,
        ack_early: bool = False,
    ) -> None:
        if on_error not in (FAIL, CANCEL):
            where = f"foreach_batch of queue '{queue}'"
            raise ConfigError("BAD_VALUE", key="on_error", where=where, value=on_error, expected=f'"{FAIL}" or "{CANCEL}"')
        self._fn = fn
        self._on_barrier = on_barrier or fn
        self._store = store
        self._endpoint = endpoint
        self._queue = queue
        self._subscription = subscription
        self._cancels = on_error == CANCEL
        self._ack_early = ack_early
        self._reporter: RunReporter | None = None
        self._listener: ProofListener | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reporter": None, "_listener": None}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Run the batch's function on it and report the outcomes; a report that fails, fails the batch."""
        reporter = self._reporter = self._reporter or self._connect()
        started = self._start(reporter)
        run = started.run
        self._listen(reporter, batch)
        try:
            if not started.messages and batch.count() == 0:
                # A repeat of a batch that went back, or a start before the first message: fn may rely on a row.
                reporter.end(run)
                return
            of_batch = {"destination__subscription__name": self._subscription, "spark_queue__batch": batch_id}
            with tracing.span("process", self._queue, links=_contexts(batch), begun_ms=None, **of_batch):
                outcomes = self._work(reporter, started, batch, batch_id)
        except Exception as failure:
            if not self._goes_on_after(failure, reporter, run, batch, batch_id):
                raise
        else:
            self._end(reporter, run, outcomes)

    def _end(self, reporter: RunReporter, run: replies.Run, outcomes: tuple[OutcomeRows, ...]) -> None:
        """Report the end of a run that did not raise."""
        reporter.end(run, outcomes, settle=self._ack_early)

    def _goes_on_after(self, failure: Exception, reporter: RunReporter, run: replies.Run, batch: DataFrame, batch_id: int) -> bool:
        """Report the end of a run that raised; returns whether its batch goes back, and the query on."""
        error = _error_text(failure)
        end = end_of(failure, batch.sparkSession)
        if end is RunEnd.LOST:
            _log.warning(
                "batch %d of queue '%s' ended with its Spark, which does not count against its messages", batch_id, self._queue
            )
            return False
        gives_back = self._cancels and not _is_slip(failure)
        if end is RunEnd.STOPPED:
            _log.warning(
                ("batch %d of queue '%s' was stopped, which does not count against its messages: %s"), batch_id, self._queue, error
            )
            if gives_back:
                reporter.end(run, stopped=True)
            else:
                reporter.stop(run)
        elif gives_back:
            _log.warning("batch %d of queue '%s' goes back, because fn raised: %s", batch_id, self._queue, error)
            reporter.end(run, error=error)
        else:
            reporter.fail(run, error)
        return gives_back

    def _start(self, reporter: RunReporter) -> replies.RunStarted:
        """Report the start of a run."""
        return reporter.start()

    def _work(
        self,
        reporter: RunReporter,  # noqa: ARG002 - a sink's batch says more than how it began and ended.
        started: replies.RunStarted,
        batch: DataFrame,
        batch_id: int,
    ) -> tuple[OutcomeRows, ...]:
        """Run the batch's function; returns the outcomes that it gives to messages of the batch."""
        return self._outcomes(self._call(self._on_barrier if started.is_barrier else self._fn, batch, batch_id), batch)

    def _call(self, fn: BatchFunction, batch: DataFrame, batch_id: int) -> Any:
        try:
            return fn(batch, batch_id)
        except Exception:
            raise
        except BaseException as ended:
            # Spark's caller of fn answers after an exception alone; by anything else it would end, and the query wait for ever.
            what = "".join(traceback.format_exception_only(ended)).strip()
            raise CallerError("BATCH_FUNCTION_ENDED", queue=self._queue, what=what) from ended

    def _outcomes(self, returned: Any, batch: DataFrame) -> tuple[OutcomeRows, ...]:
        """Evaluate a table of exceptions, once."""
        if returned is None:
            return ()
        # A function that returns one of pandas has loaded it; others do not need it.
        pandas = sys.modules.get("pandas")
        if isinstance(returned, pa.Table | DataFrame) or (pandas is not None and isinstance(returned, pandas.DataFrame)):
            found = returned.column_names if isinstance(returned, pa.Table) else map(str, returned.columns)
            columns = outcome_columns(self._queue, found, batch.columns)
            return read_outcomes(self._queue, evaluated(self._queue, returned, columns))
        reason = f"fn returned {type(returned).__name__}."
        next_step = "Return None, or a DataFrame of Spark or pandas, or an Arrow table."
        raise CallerError("OUTCOME_INVALID", queue=self._queue, reason=reason, next_step=next_step)

    def _connect(self) -> RunReporter:
        return RunReporter(self._store, endpoint=self._endpoint, queue=self._queue, subscription=self._subscription)

    def _listen(self, reporter: RunReporter, batch: DataFrame) -> None:
        """Listen for commits, where Spark has a listener (a wrapper that was shipped to a Connect server has none)."""
        session = batch.sparkSession
        if getattr(session, "_jsparkSession", None) is None:
            return
        query_id = session.sparkContext.getLocalProperty(QUERY_ID)
        if query_id is None or (self._listener is not None and self._listener.query_id == query_id):
            return
        self._meet(session, query_id)
        try:
            self._listener = ProofListener(session, query_id, reporter.prove)
        except Exception as reason:  # noqa: BLE001 - it asks for what Spark's vendors may have changed, and the planner proves, too.
            _log.warning(
                "commits of query %s are not reported, so each batch is proven only when Spark asks for more: %s", query_id, reason
            )

    def _meet(self, session: SparkSession, query_id: str) -> None:
        """Look at a query before its first batch."""


def _error_text(failure: Exception) -> str:
    """Return the text of an exception, as it is reported and logged: without the stack of Java that Py4J writes into it."""
    # An error may name a file that is no text, and the failure of its report would then hide it.
    text = "".join(traceback.format_exception_only(failure)).strip().encode(errors="replace").decode()
    return "\n".join(line for line in text.split("\n") if not line.startswith(_OF_STACKS))


def _contexts(batch: DataFrame) -> list[str]:
    """Return the contexts of the sends of a batch's messages, at the cost of a small job of Spark's."""
    # Only then the columns: Spark Connect asks its server for them.
    column = next((name for name in batch.columns if name.lower() == tracing.COLUMN), None) if tracing.is_on() else None
    if column is None:
        return []
    try:
        found = batch.select(column).dropna().distinct().limit(tracing.LINKS_LIMIT).collect()
    except Exception as reason:  # noqa: BLE001 - a span without links is no reason to fail a batch.
        _log.warning("a batch is not linked to the traces of its messages: %s", reason)
        return []
    return [str(row[0]) for row in found]


def _is_slip(failure: Exception) -> bool:
    """Return whether outcomes were misspoken, or a sink is not as it must be: giving such a batch back would only repeat that."""
    return isinstance(failure, SparkQueueError) and (failure.code == "OUTCOME_INVALID" or failure.code.startswith("SINK_"))
