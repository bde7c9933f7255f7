"""The wait of an idle topic stream for messages: by a coordinator if one serves, else by looks at the log (DESIGN 6)."""

from __future__ import annotations

import logging
import threading
from typing import cast

from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.clock import SystemClock
from spark_queue.errors import SparkQueueError
from spark_queue.journal.log_looks import LogLooks
from spark_queue.journal.store import Store
from spark_queue.protocol import wire
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.source.topic_log import TopicLog

_log = logging.getLogger(__name__)

#: How long an idle stream waits before Spark may ask the other sources of its query, in milliseconds.
WAIT_MS = 1_000

#: How long it looks for itself before it asks again whether a coordinator serves, in milliseconds.
ALONE_MS = 60_000

#: How long it waits for the coordinator's answer, in seconds.
_ANSWER_S = 5.0


class TopicFollower:
    """Reads a topic's log on as messages come."""

    def __init__(self, log: TopicLog, store: Store, journal_id: str, *, endpoint: Endpoint) -> None:
        self._log = log
        self._clock = SystemClock()
        self._looks = LogLooks(self._clock.monotonic_ms())
        self._looks.looked(self._clock.monotonic_ms(), came=False, searched=True)
        self._coordinator = CoordinatorClient(store, journal_id, endpoint=endpoint, start=False)
        self._asks_from_ms = 0

    def follow(self, bookmark: int) -> None:
        """Read on if no message is known from a bookmark on, and wait for one for a while."""
        if self._log.until > bookmark:
            return
        begun_ms = self._clock.monotonic_ms()
        if begun_ms >= self._asks_from_ms:
            try:
                asked = wire.AwaitPublish(message_type=self._log.message_type, after_version=self._log.version, wait_ms=WAIT_MS)
                told = cast(wire.LogHead, self._coordinator.call(asked, timeout_s=_ANSWER_S))
            except SparkQueueError as reason:
                _log.debug("No coordinator reports new messages: %s", reason)
                self._asks_from_ms = begun_ms + ALONE_MS
            else:
                # A coordinator whose reign is over may say for a while that nothing comes.
                self._look(is_told=told.head > self._log.version)
                return
        wait_ms = self._looks.due_ms() - begun_ms
        if wait_ms > 0:
            threading.Event().wait(min(wait_ms, WAIT_MS) / 1_000)
        if wait_ms <= WAIT_MS:
            self._look(is_told=True)

    def _look(self, *, is_told: bool) -> None:
        finds_gaps = self._looks.finds_gaps(self._clock.monotonic_ms())
        if is_told or finds_gaps:
            came = self._log.refresh(finds_gaps=finds_gaps)
            self._looks.looked(self._clock.monotonic_ms(), came=came, searched=finds_gaps)
