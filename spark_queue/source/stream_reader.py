"""The stream of a queue: Spark's calls on one side, the planner's on the other (DESIGN 7)."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_queue.source.offsets import QueueOffset
from spark_queue.source.partitions import MessageReader, PlanningReader
from spark_queue.source.planning import cut
from spark_queue.source.spark_versions import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from spark_queue.settings.types import QueueStreamOptions
    from spark_queue.source.planner import QueuePlanner

#: How long one idle `latestOffset` waits for messages; a query that stops waits no longer than this for its leave.
LONG_POLL_MS = 1_000


class QueueStreamReader(PlanningReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Turns leases into micro-batches.

    Spark makes two of these: one in the planner, and one elsewhere only to be pickled for executors. So nothing starts in
    ``__init__``, and the `MessageReader` alone is pickled.
    """

    def __init__(
        self, options: QueueStreamOptions, *, first_offset: QueueOffset, reader: MessageReader, columns: str | None
    ) -> None:
        self._options = options
        self._columns = columns
        self._first_offset = first_offset
        self._reader = reader
        self._planner: QueuePlanner | None = None
        self._available_now = False
        self._status: dict[str, Any] | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the queue: later messages wait for the next run."""
        self._available_now = True
        self._seated()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the subscription's backlog."""
        self._seated()
        return ReadMaxRows(self._options.max_backlog)

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first lease; a constant, because Spark asks again after a restart."""
        self._seated()
        return self._first_offset.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Prove the lease of `start`, whose batch Spark has committed, and return the next one.

        Where nothing is there the very `start` is given back, since Spark compares offsets as text.
        """
        offset = self._first_offset.check(start)
        rows_limit = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_backlog
        # A run for the messages of now (AvailableNow, Once) ends where nothing is; any other waits for messages.
        waits = isinstance(limit, ReadMaxRows) and not self._available_now
        wait_ms = LONG_POLL_MS if waits else 0
        granted = self._seated().next(finished=offset.lease, limit=rows_limit, wait_ms=wait_ms, asks_again=waits)
        while granted.withheld and not waits:
            # Messages kept for other subscriptions are this run's as well, unless they come for them in time.
            granted = self._seated().next(finished=offset.lease, limit=rows_limit, wait_ms=LONG_POLL_MS)
        self._status = None if granted.status is None else asdict(granted.status)
        return start if granted.lease == offset.lease else replace(offset, lease=granted.lease).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the queue's figures, as `Queue.status` names them, for Spark's progress and UI (R119)."""
        return self._status

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the rows of the lease of `end`; after a restart this resumes it."""
        if start == end:
            return []
        self._first_offset.check(start)
        lease = self._first_offset.check(end).lease
        rows = self._seated().rows(lease)
        return cut(
            rows.pieces,
            min_partitions=self._options.min_partitions,
            lease=rows.lease,
            leased_until_ms=rows.leased_until_ms,
        )

    def stop(self) -> None:
        """End the planner: a lease whose batch cannot have been committed returns at once (P6)."""
        # Spark closes the connection and sends SIGTERM at once: whichever comes second must not cut the leave short.
        _on_sigterm(signal.SIG_IGN)
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.leave()

    def _seated(self) -> QueuePlanner:
        """Return the planner, which draws its incarnation now if this is the first call of this start (DESIGN 15.6)."""
        if self._planner is None:
            # Only here: the reader that is made to be pickled speaks with no coordinator.
            from spark_queue.source.planner import QueuePlanner

            # Spark ends planners with SIGTERM and calls `stop` only on the way out, so make it an ordinary exit.
            _on_sigterm(lambda *_: sys.exit(0))
            atexit.register(self.stop)
            journal_id = self._first_offset.journal
            self._planner = QueuePlanner(self._options, journal_id, columns=self._columns, available_now=self._available_now)
        return self._planner


def _on_sigterm(handler: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
