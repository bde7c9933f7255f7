"""Hearing of the commit of a micro-batch from Spark, sooner than by the planner's next call."""

from __future__ import annotations

import atexit
import json
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from spark_queue import forks
from spark_queue.source.run_reporter import PROOF_TIMEOUT_S
from spark_queue.source.running_query import running_query

_log = logging.getLogger(__name__)


class ProofListener:
    """Hands on the end offsets of one query's batches, by Spark's events after their commits, until the query ends.

    Events are read as the JVM has them: pyspark copies all of one, which takes a fifth of a second for each batch.
    """

    def __init__(self, session: SparkSession, query_id: str, committed: Callable[[dict[str, Any]], None]) -> None:
        #: The query whose events are listened to; None when it has ended.
        self.query_id: str | None = query_id
        self._committed = committed
        # Events reach only listeners of the session that started the query, which the query alone knows: its batches run in a copy
        # of that one, and which one is active in a Python process changes with every DataFrame that somebody creates.
        query = running_query(session, query_id)
        jvm: Any = session._jvm  # noqa: SLF001 - pyspark's own listener copies events.
        self._streams = query.sparkSession().streams()
        self._java = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(self)
        self._streams.addListener(self._java)
        self._has_ended = threading.Event()
        atexit.register(self._hear_the_rest, query)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: a start proves nothing."""

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: a commit has an event of progress."""

    def onQueryProgress(self, event: Any) -> None:
        """Hand the end offsets of a batch on, if it is one of the query."""
        progress = event.progress()
        if progress.id().toString() == self.query_id:
            self.hear(source.endOffset() for source in progress.sources())

    def onQueryTerminated(self, event: Any) -> None:
        """Stop listening, if this is the query that has ended; the next batch of a restarted one begins again."""
        if event.id().toString() == self.query_id:
            self.query_id = None
            self._streams.removeListener(self._java)
            self._has_ended.set()
            atexit.unregister(self._hear_the_rest)

    def _hear_the_rest(self, query: Any) -> None:
        """Wait, where the program ends, for Spark's last events of a query that has ended: its last commit is among them."""
        # A session that was stopped, or has gone, has nothing to tell; and a forked child has none of its own.
        with suppress(Exception):
            forks.check_process()
            if not query.isActive():
                self._has_ended.wait(PROOF_TIMEOUT_S)

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
