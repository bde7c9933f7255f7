"""Replaying a topic, as a stream or as a batch: no leases, no acknowledgements (R8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from spark_queue.source.columns import check_kept_up
from spark_queue.source.offsets import TopicOffset
from spark_queue.source.partitions import MessageReader, PlanningReader
from spark_queue.source.planning import cut
from spark_queue.source.spark_versions import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from spark_queue.settings.types import TopicBatchOptions, TopicStreamOptions
    from spark_queue.source.topic_following import TopicFollower
    from spark_queue.source.topic_log import TopicLog


class TopicStreamReader(PlanningReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as a stream: an offset is the first bookmark that was not read yet."""

    def __init__(
        self, options: TopicStreamOptions, *, first_offset: TopicOffset, reader: MessageReader, columns: str | None
    ) -> None:
        self._options = options
        self._columns = columns
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
        """Return no limit: all messages that are there."""
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch; a constant, because Spark asks again after a restart."""
        return self._first_offset.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002 - Spark's signature.
        """Return the end of the topic, or the very `start` where no message is new, since Spark compares offsets as text."""
        offset = self._first_offset.check(start)
        log = self._opened()
        if not self._available_now:
            self._follower = self._follower or _follower_of(log, self._options, self._first_offset)
            self._follower.follow(offset.bookmark)
        if log.until <= offset.bookmark:
            return start
        self._check_columns(log)
        return replace(offset, bookmark=log.until).to_json()

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
        if self._log is None:
            self._log = _open_log(self._options, self._first_offset)
            # Here, too: after a restart Spark plans the batch that is not committed, and asks for no offset first.
            self._check_columns(self._log)
        return self._log

    def _check_columns(self, log: TopicLog) -> None:
        if log.columns is not None:
            check_kept_up(self._columns, log.columns, message_type=log.message_type)


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
    # Only a stream that goes on waits for messages; the client of a coordinator takes a while to import.
    from spark_queue.journal.store import Store
    from spark_queue.protocol.endpoint import Endpoint
    from spark_queue.source.topic_following import TopicFollower

    store, endpoint = Store(options.journal, options.storage), Endpoint(options.coordinator, options.token_file)
    return TopicFollower(log, store, offset.journal, endpoint=endpoint)
