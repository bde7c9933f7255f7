"""Hearing from Spark that a micro-batch is committed, sooner than the planner's next call would tell."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

_log = logging.getLogger(__name__)


class ProofListener(StreamingQueryListener):
    """Hands on the end offsets of one query's batches, until it ends.

    Parameters
    ----------
    session
        Where the query was started: events reach no listener of another.
    committed
        Takes an offset whose batch Spark has committed. What it raises is logged only: the planner proves the batch too.
    """

    def __init__(self, session: SparkSession, committed: Callable[[dict[str, Any]], None]) -> None:
        self._session = session
        self._committed = committed
        #: Whose events are listened to; None while none are.
        self._query_id: UUID | None = None

    def listen(self, query_id: UUID) -> None:
        """Begin to listen to a query, unless it is heard already."""
        is_heard, self._query_id = self._query_id is not None, query_id
        if not is_heard:
            self._session.streams.addListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a start proves nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Hand the end offsets on: Spark tells of progress after the commit."""
        if event.progress.id != self._query_id:
            return
        for offset in map(_to_offset, event.progress.sources):
            try:
                self._committed(offset)
            except Exception as reason:  # noqa: BLE001 - whatever it is, the query goes on, and the planner proves the batch.
                _log.warning("the proof of a batch was not reported: %s", reason)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Stop listening; the next batch of a restarted query begins again."""
        if event.id == self._query_id:
            self._query_id = None
            self._session.streams.removeListener(self)


def _to_offset(source: Any) -> dict[str, Any]:
    try:
        offset = json.loads(source.endOffset)
    except (TypeError, ValueError):
        # Another source's offset need not be JSON.
        return {}
    return offset if isinstance(offset, dict) else {}
