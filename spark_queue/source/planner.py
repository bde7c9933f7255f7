"""A queue stream's planner and its calls to the coordinator: one incarnation, numbered calls, renewals, a goodbye.

Rules P1 to P7 of the design stand in `spark_queue.core`; this side only speaks: it draws an incarnation when it is first
used, attaches, and numbers its calls. It is used by one thread; renewals carry no number and come from their own, and so does the
word that rows were taken.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar, cast

from spark_queue import tracing
from spark_queue.client.coordinator_client import CoordinatorClient, RowRanges, call_once
from spark_queue.clock import SystemClock, steady_s
from spark_queue.core import commands, replies
from spark_queue.errors import SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.settings.types import QueueStreamOptions
from spark_queue.source.columns import check_kept_up
from spark_queue.source.renewal import LeaseRenewer

_log = logging.getLogger(__name__)


#: A planner that ends waits no longer for the coordinator; unheard, its lease ends by itself.
_LEAVE_TIMEOUT_S = 2.0

_Request = TypeVar("_Request", bound=commands.SubscriptionCommand)


@dataclass(slots=True)
class _Given:
    """The rows that came with the grant of a lease."""

    rows: RowRanges
    #: Until when Spark is given them as they are, by `steady_s`; later they may have gone back.
    until_s: float
    is_taken: bool = False


class QueuePlanner:
    """One start of a planner; made and used in the planner process only, because it holds a connection and a thread."""

    def __init__(self, options: QueueStreamOptions, journal_id: str, *, columns: str | None, available_now: bool) -> None:
        self._options = options
        self._store = Store(options.journal, options.storage)
        self._journal_id = journal_id
        self._endpoint = Endpoint(options.coordinator, options.token_file)
        self._client = CoordinatorClient(self._store, journal_id, endpoint=self._endpoint)
        drawn = cast(replies.Drawn, self._client.call(self._request(commands.DrawIncarnation)))
        self._incarnation = drawn.incarnation
        #: As the coordinator said last, in milliseconds.
        self._lease_period_ms = drawn.lease_period_ms
        self._message_type, self._columns = drawn.message_type, columns
        self._keep_up(drawn.columns)
        self._given: _Given | None = None
        #: The newest lease of which Spark was given the rows as they came.
        self._taken = 0
        self._numbers = count(1)
        self._renewer = LeaseRenewer(self._renew)
        wanted = {"ack_mode": options.ack_mode, "max_backlog": options.max_backlog, "filter": options.filter}
        attach = self._numbered(commands.Attach, **wanted, available_now=available_now)
        self._client.call(attach)

    def next(self, *, finished: int, limit: int, wait_ms: int, asks_again: bool = False) -> replies.Granted:
        """Prove lease `finished` and get the next one, or `finished` again when nothing is there; see `commands.Next`."""
        begun_ms, begun_s = SystemClock().wall_ms(), steady_s()
        poll = {"finished": finished, "limit": limit, "wait_ms": wait_ms, "asks_again": asks_again}
        while True:
            granted, pieces = self._client.next_with_rows(self._numbered(commands.Next, **poll, columns=self._columns))
            if granted.lease != finished or not granted.columns or self._columns in (None, granted.columns):
                break
            # Nothing was granted, since others hold; where these are only spelt otherwise, it asks again.
            self._keep_up(granted.columns)
        if pieces is not None:
            until_ms = granted.leased_until_ms
            rows = RowRanges(message_type=self._message_type, lease=granted.lease, leased_until_ms=until_ms, pieces=pieces)
            self._given = _Given(rows, begun_s + granted.remaining_ms / 1_000)
        if granted.lease != finished:
            # Only now: polls that find nothing are no news.
            self._trace(granted, begun_ms)
        self._lease_period_ms = granted.lease_period_ms
        # The finished one is proven.
        self._renewer.hold(None if granted.lease == finished else granted.lease, lease_period_ms=self._lease_period_ms)
        return granted

    def _keep_up(self, columns: str) -> None:
        """Read by the columns of now, where they are those of the load in other words; refuse others."""
        if self._columns is not None:
            check_kept_up(self._columns, columns, message_type=self._message_type)
            self._columns = columns

    def _trace(self, granted: replies.Granted, begun_ms: int) -> None:
        """Make a span of a poll that was granted a lease."""
        with tracing.span(
            "receive", self._options.queue, begun_ms=begun_ms, batch__message_count=granted.messages,
            spark_queue__lease=granted.lease, destination__subscription__name=self._options.subscription,
        ):  # fmt: skip
            pass

    def rows(self, lease: int) -> RowRanges:
        """Get the rows of a lease; the first call of a new start resumes it (P2).

        Those that came with a grant are known: the coordinator hears that they were taken while their batch runs, since nobody
        waits for that. Asked again, they are the same (P1).
        """
        given = self._given
        if given is not None and given.rows.lease == lease and self._hands_out(given):
            return given.rows
        rows = self._client.rows(self._numbered(commands.Rows, lease=lease))
        self._renewer.hold(lease, lease_period_ms=self._lease_period_ms)
        return rows

    def _hands_out(self, given: _Given) -> bool:
        """Return whether Spark is given rows as they came with their grant."""
        if not given.is_taken and steady_s() < given.until_s:
            given.is_taken, self._taken = True, given.rows.lease
            told = self._numbered(commands.RowsTaken, lease=self._taken)
            threading.Thread(target=self._tell, args=(told,), name="sparkqueue-rows-taken", daemon=True).start()
        return given.is_taken

    def _tell(self, taken: commands.RowsTaken) -> None:
        try:
            self._client.call(taken)
        except SparkQueueError as reason:
            _log.info("lease %d was taken, and the coordinator did not hear of it: %s", taken.lease, reason)

    def leave(self) -> None:
        """Tell the coordinator that this planner ends (P6), if one runs."""
        self._renewer.stop()
        self._client.close()
        request = self._request(commands.Leave, incarnation=self._incarnation, call=0, taken=self._taken)
        try:
            # A coordinator is not started to hear a leave, so this does not go by the planner's own client.
            call_once(self._store, self._journal_id, request, endpoint=self._endpoint, start=False, timeout_s=_LEAVE_TIMEOUT_S)
        except SparkQueueError as reason:
            _log.info("leaving was not reported, so the lease ends by itself: %s", reason)

    def _renew(self, lease: int) -> int:
        request = self._request(commands.Renew, incarnation=self._incarnation, call=0, lease=lease)
        renewed = cast(replies.Renewed, self._client.call(request, timeout_s=self._lease_period_ms / 3_000))
        self._lease_period_ms = renewed.lease_period_ms
        return renewed.lease_period_ms

    def _numbered(self, kind: type[_Request], **fields: Any) -> _Request:
        return self._request(kind, incarnation=self._incarnation, call=next(self._numbers), **fields)

    def _request(self, kind: type[_Request], **fields: Any) -> _Request:
        return kind(queue=self._options.queue, subscription=self._options.subscription, **fields)
