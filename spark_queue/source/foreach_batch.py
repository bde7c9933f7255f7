"""The wrapper around a user's batch function: it says when fn starts and what came of it, before Spark gets control back.

What a running batch function says to the coordinator: it starts, it ended with these outcomes, it failed, it is proven.
Hearing from Spark that a micro-batch is committed, sooner than the planner's next call would tell.
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_queue import forks, tracing
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.client.outcomes import evaluated, outcome_columns, read_outcomes
from spark_queue.core import commands, replies
from spark_queue.core.commands import OutcomeRows
from spark_queue.errors import CallerError, ConfigError, LeaseError, SparkQueueError
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import Store
from spark_queue.protocol.connection import Endpoint
from spark_queue.settings.types import EXPLICIT
from spark_queue.source.partitions import QueueOffset
from spark_queue.source.run_ends import QUERY_ID, RunEnd, end_of

_log = logging.getLogger(__name__)

#: A proof that takes longer is left to the planner.
_PROOF_TIMEOUT_S = 5.0


class RunReporter:
    """Speaks for the batches of one subscription, one run at a time; holds a connection.

    Parameters
    ----------
    store, endpoint
        The journal, and how its coordinator is reached.
    queue, subscription
        What the batches come from.
    """

    def __init__(self, store: Store, *, endpoint: Endpoint, queue: str, subscription: str) -> None:
        #: The journal that the batches come from.
        self.journal_id = journal_id = open_reader(store).journal_id
        self._client = CoordinatorClient(store, journal_id, endpoint=endpoint)
        # A proof is worth no start of a coordinator: the planner's next one brings it too.
        self._prover = CoordinatorClient(store, journal_id, endpoint=endpoint, start=False)
        self._who: dict[str, Any] = {"queue": queue, "subscription": subscription}
        self._offset = QueueOffset(journal=journal_id, queue=queue, subscription=subscription)
        #: The run that ended last and is not known to be proven.
        self._unproven: replies.Run | None = None

    def start(self, *, sink: bool = False) -> replies.RunStarted:
        """Say that fn is about to run; returns the run that it speaks for, and whether its batch is a barrier.

        Parameters
        ----------
        sink
            Whether what fn gives is appended to a sink.

        Raises
        ------
        CallerError
            ACK_MODE_MISMATCH for a query whose rows are settled by hand, UNKNOWN_SUBSCRIPTION for one that has no stream.
        """
        self._unproven = None
        started = cast(replies.RunStarted, self.say(commands.StartRun, sink=sink))
        if started.ack_mode == EXPLICIT:
            raise CallerError(
                "ACK_MODE_MISMATCH",
                **self._who,
                ack_mode=EXPLICIT,
                what="foreach_batch",
                needed="auto",
                next_step="Leave option ackMode out, or pass fn to foreachBatch itself and settle rows with queue.settle.",
            )
        return started

    def say(self, command: Callable[..., commands.AnyCommand], **fields: Any) -> Any:
        """Say something else about a run of the subscription, or of another one of the queue; returns the answer."""
        return self._client.call(command(**{**self._who, **fields}))

    def nudge(self, message_type: str) -> None:
        """Say that messages were published."""
        self._prover.nudge(message_type)

    def end(
        self,
        run: replies.Run,
        outcomes: tuple[commands.OutcomeRows, ...] = (),
        *,
        settle: bool = False,
        error: str | None = None,
        stopped: bool = False,
    ) -> None:
        """Say what fn said of its rows; or with what error it failed, or that it was stopped, and its whole batch goes back.

        Raises
        ------
        CallerError
            UNKNOWN_BOOKMARK; nothing was staged.
        LeaseError
            STALE_RUN when a newer reader has taken the subscription over.
        """
        said: dict[str, Any] = {"outcomes": outcomes, "settle": settle, "error": error, "stopped": stopped}
        command = commands.EndRun(**self._who, run=run, **said, cancel=error is not None or stopped)
        self._client.call(command)
        self._unproven = run

    def fail(self, run: replies.Run, error: str) -> None:
        """Say that fn raised. Where nobody hears it, what fn raised is still what the user must see."""
        self._try_to_end(commands.EndRun(**self._who, run=run, error=error))

    def stop(self, run: replies.Run) -> None:
        """Say that fn was ended from outside, which is held against no message."""
        self._try_to_end(commands.EndRun(**self._who, run=run, stopped=True))

    def _try_to_end(self, command: commands.EndRun) -> None:
        try:
            self._client.call(command)
        except SparkQueueError as reason:
            _log.warning("the end of a batch was not reported, so its lease ends by itself: %s", reason)

    def prove(self, offset: Mapping[str, Any]) -> None:
        """Say that Spark has committed the batch of an offset, if it is the one that ended last.

        A newer run has the older one proven: its lease was granted for the proof.
        """
        run = self._unproven
        if run is None or not run.lease or not self._is_of(run, offset):
            return
        subscription = self._who["subscription"]
        with tracing.span("settle", self._who["queue"], destination__subscription__name=subscription, spark_queue__lease=run.lease):
            self._prover.call(commands.Prove(**self._who, run=run), timeout_s=_PROOF_TIMEOUT_S)
        # Asked from the listener's thread: meanwhile a newer run may have ended, whose proof is still to come.
        if self._unproven is run:
            self._unproven = None

    def _is_of(self, run: replies.Run, offset: Mapping[str, Any]) -> bool:
        try:
            return self._offset.check(offset).lease == run.lease
        except LeaseError:
            # Another source of the same query.
            return False


class ProofListener:
    """Hands on the end offsets of one query's batches, of which Spark tells after the commit, until the query ends.

    Events are read as the JVM has them: pyspark copies all that is in one, which takes a fifth of a second for each batch.

    Parameters
    ----------
    session
        That of a batch.
    query_id
        The query that runs the batch.
    committed
        Takes an offset whose batch Spark has committed. What it raises is logged only: the planner proves the batch too.
    """

    def __init__(self, session: SparkSession, query_id: str, committed: Callable[[dict[str, Any]], None]) -> None:
        #: Whose events are listened to; None when it has ended.
        self.query_id: str | None = query_id
        self._committed = committed
        # Events reach only listeners of the session that started the query, which the query alone knows: its batches run in a copy
        # of that one, and which one is active in a Python process changes with every DataFrame that somebody creates.
        jvm: Any = session._jvm  # noqa: SLF001 - pyspark has no way of its own to a query of another session.
        queries = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001 - as said above.
        query = queries.get(jvm.java.util.UUID.fromString(query_id))
        self._streams = query.sparkSession().streams()
        self._java = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(self)
        self._streams.addListener(self._java)
        self._has_ended = threading.Event()
        atexit.register(self._hear_the_rest, query)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: a start proves nothing."""

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: what was committed was told before."""

    def onQueryProgress(self, event: Any) -> None:
        """Hand the end offsets of a batch on, if it is one of the query."""
        progress = event.progress()
        if progress.id().toString() == self.query_id:
            self.hear(source.endOffset() for source in progress.sources())

    def onQueryTerminated(self, event: Any) -> None:
        """Listen no longer, if this is the query that has ended; the next batch of a restarted one begins again."""
        if event.id().toString() == self.query_id:
            self.query_id = None
            self._streams.removeListener(self._java)
            self._has_ended.set()
            atexit.unregister(self._hear_the_rest)

    def _hear_the_rest(self, query: Any) -> None:
        """Wait, where the program ends, for what Spark has yet to tell of a query that has ended: its last commit, too."""
        # A session that was stopped, or has gone, has nothing to tell; and a forked child has none of its own.
        with suppress(Exception):
            forks.check_process()
            if not query.isActive():
                self._has_ended.wait(_PROOF_TIMEOUT_S)

    def hear(self, end_offsets: Iterable[Any]) -> None:
        """Hand the end offsets of a batch on."""
        for offset in map(_to_offset, end_offsets):
            try:
                self._committed(offset)
            except Exception as reason:  # noqa: BLE001 - whatever it is, the query goes on, and the planner proves the batch.
                _log.warning("the proof of a batch was not reported: %s", reason)

    class Java:
        """Py4J's notice of the interface that this is."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def _to_offset(stored: Any) -> dict[str, Any]:
    try:
        offset = json.loads(stored)
    except (TypeError, ValueError):
        # Another source's offset need not be JSON.
        return {}
    return offset if isinstance(offset, dict) else {}


#: What a user writes: it sees a micro-batch, and may return a table that names the exceptions among its rows; pandas's frames, too.
BatchFunction = Callable[[DataFrame, int], Any]

FAIL = "fail"
CANCEL = "cancel"


class BatchWrapper:
    """The function for ``writeStream.foreachBatch``; its pickled form holds no connection (DESIGN 7, P4 and P6).

    Parameters
    ----------
    fn
        The user's function.
    on_barrier
        Called instead of `fn` with a batch that is a barrier, or None.
    store, endpoint
        The journal, and how its coordinator is reached.
    queue, subscription
        What the batches come from.
    on_error
        What happens to the batch when fn raises: ``fail`` fails the query, ``cancel`` gives the whole batch back.
    ack_early
        Whether outcomes take effect when fn returns instead of when Spark has committed the batch.

    Raises
    ------
    ConfigError
        BAD_VALUE for an unknown `on_error`.
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
        """Run the batch's function on it and report what came of it; a report that fails, fails the batch.

        Raises
        ------
        CallerError
            OUTCOME_INVALID, UNKNOWN_BOOKMARK or ACK_MODE_MISMATCH; nothing was settled. BATCH_FUNCTION_ENDED when fn ended by
            SystemExit and the like, unless `on_error` is ``cancel``.
        LeaseError
            STALE_RUN when a newer reader has taken the subscription over.
        Exception
            What fn raised, unless `on_error` is ``cancel``.
        """
        reporter = self._reporter = self._reporter or self._connect()
        started = self._start(reporter)
        run = started.run
        self._listen(reporter, batch)
        try:
            if not started.messages and batch.count() == 0:
                # A repeat of a batch that went back, or a start before the first message: fn may take a row for granted.
                reporter.end(run)
                return
            of_batch = {"destination__subscription__name": self._subscription, "spark_queue__batch": batch_id}
            with tracing.span("process", self._queue, links=_contexts(batch), begun_ms=None, **of_batch):
                outcomes = self._work(reporter, started, batch, batch_id)
        except Exception as failure:
            if not self._goes_on_after(failure, reporter, run, batch, batch_id):
                raise
        else:
            reporter.end(run, outcomes, settle=self._ack_early)

    def _goes_on_after(self, failure: Exception, reporter: RunReporter, run: replies.Run, batch: DataFrame, batch_id: int) -> bool:
        """Say how a run ended that raised; returns whether its batch goes back, and the query on."""
        # An error may name a file that is no text, and the failure of its report would then hide it.
        error = "".join(traceback.format_exception_only(failure)).strip().encode(errors="replace").decode()
        end = end_of(failure, batch.sparkSession)
        if end is RunEnd.LOST:
            _log.warning(
                "batch %d of queue '%s' ended with its Spark, which says nothing about its messages", batch_id, self._queue
            )
            return False
        gives_back = self._cancels and not _is_slip(failure)
        if end is RunEnd.STOPPED:
            _log.warning("batch %d of queue '%s' was stopped, which is held against no message: %s", batch_id, self._queue, error)
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
        """Say that fn is about to run."""
        return reporter.start()

    def _work(
        self,
        reporter: RunReporter,  # noqa: ARG002 - a sink's batch says more than how it began and ended.
        started: replies.RunStarted,
        batch: DataFrame,
        batch_id: int,
    ) -> tuple[OutcomeRows, ...]:
        """Run the batch's function; returns what it says of the batch's messages."""
        return self._outcomes(self._call(self._on_barrier if started.is_barrier else self._fn, batch, batch_id), batch)

    def _call(self, fn: BatchFunction, batch: DataFrame, batch_id: int) -> Any:
        try:
            return fn(batch, batch_id)
        except Exception:
            raise
        except BaseException as ended:
            # What calls fn for Spark answers after an exception alone; by anything else it would end, and the query wait for ever.
            what = "".join(traceback.format_exception_only(ended)).strip()
            raise CallerError("BATCH_FUNCTION_ENDED", queue=self._queue, what=what) from ended

    def _outcomes(self, returned: Any, batch: DataFrame) -> tuple[OutcomeRows, ...]:
        """Evaluate a table of exceptions, once."""
        if returned is None:
            return ()
        # Whoever returns one of pandas has loaded it; nobody else needs it.
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
        """Hear of commits, where Spark tells (a wrapper that was shipped to a Connect server is told nothing)."""
        session = batch.sparkSession
        if getattr(session, "_jsparkSession", None) is None:
            return
        query_id = session.sparkContext.getLocalProperty(QUERY_ID)
        if query_id is None or (self._listener is not None and self._listener.query_id == query_id):
            return
        try:
            self._listener = ProofListener(session, query_id, reporter.prove)
        except Exception as reason:  # noqa: BLE001 - it asks for what Spark's vendors may have changed, and the planner proves, too.
            _log.warning(
                "commits of query %s are not heard of, so each batch is proven when Spark asks for more: %s", query_id, reason
            )


def _contexts(batch: DataFrame) -> list[str]:
    """Return the contexts of the sends whose messages are in a batch, which it costs a small job of Spark's to find out."""
    # Only then the columns: Spark Connect asks its server for them.
    column = next((name for name in batch.columns if name.lower() == tracing.COLUMN), None) if tracing.is_on() else None
    if column is None:
        return []
    try:
        found = batch.select(column).dropna().distinct().limit(tracing.LINKS_LIMIT).collect()
    except Exception as reason:  # noqa: BLE001 - a span without links is no reason to fail a batch.
        _log.warning("a batch is not linked to the sends of its messages: %s", reason)
        return []
    return [str(row[0]) for row in found]


def _is_slip(failure: Exception) -> bool:
    """Return whether outcomes were misspoken, or a sink is not as it must be: giving such a batch back would only repeat that."""
    return isinstance(failure, SparkQueueError) and (failure.code == "OUTCOME_INVALID" or failure.code.startswith("SINK_"))
