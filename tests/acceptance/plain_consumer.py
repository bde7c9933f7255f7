"""A stream of a queue without Spark: the real source, called as Spark calls it, in this process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spark_queue import Journal
from spark_queue.source.datasource import SparkQueueDataSource
from spark_queue.source.spark_versions import ReadAllAvailable, ReadMaxRows


class PlainConsumer:
    """One run of a query that keeps its checkpoint in memory."""

    def __init__(self, journal: Journal, queue: str, subscription: str, start: dict[str, Any] | None) -> None:
        options = {"path": journal.path, "queue": queue, "subscription": subscription}
        source = SparkQueueDataSource(options)
        self._reader = source.streamReader(source.schema())
        #: The newest batch that was finished.
        self.offset = self._reader.initialOffset() if start is None else start
        #: The batch that was planned and not finished, if any.
        self._planned: dict[str, Any] | None = None

    def take(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Finish the batch taken last, take the next, and read it; a batch that could not be read is read again.

        Gives no rows when nothing is there.
        """
        if self._planned is None:
            rows_limit = ReadAllAvailable() if limit is None else ReadMaxRows(limit)
            # Spark's base class has the older form of this method.
            latest: Any = self._reader.latestOffset
            self._planned = latest(self.offset, rows_limit)
        rows: list[dict[str, Any]] = []
        for partition in self._reader.partitions(self.offset, self._planned):
            batches: Any = self._reader.read(partition)
            rows += [row for batch in batches for row in batch.to_pylist()]
        self.offset, self._planned = self._planned, None
        return rows

    def drain(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Take and finish batches until nothing is there."""
        rows: list[dict[str, Any]] = []
        while taken := self.take(limit):
            rows += taken
        return rows

    def stop(self) -> None:
        """End the run."""
        self._reader.stop()


@contextmanager
def consumer(
    journal: Journal, queue: str, subscription: str = "s", *, start: dict[str, Any] | None = None
) -> Iterator[PlainConsumer]:
    """Run a query; `start` is the offset at which an earlier one ended."""
    # The source ends its process on SIGTERM, which here is the test's.
    handler = signal.getsignal(signal.SIGTERM)
    query = PlainConsumer(journal, queue, subscription, start)
    try:
        yield query
    finally:
        query.stop()
        signal.signal(signal.SIGTERM, handler)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    """Return the ids of rows of the tests' message type, in the order of the rows."""
    return [row["id"] for row in rows]
