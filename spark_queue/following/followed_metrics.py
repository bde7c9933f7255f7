"""What machines are told of followed journals (DESIGN 18): each question costs what is new in their logs."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pyarrow as pa

from spark_queue.core.records import Record
from spark_queue.errors import SparkQueueError
from spark_queue.following.follower import JournalFollower, status_of
from spark_queue.journal.control_files import to_records_of
from spark_queue.metrics.figures import figures_of
from spark_queue.metrics.samples import Family, LogObserver, Observation, RecordsSince, collect, unreadable

#: How long a question may wait for the first fold of a log, in seconds: less than whoever scrapes waits for an answer.
_FIRST_WAIT_S = 8.0


class FollowedMetrics:
    """The metrics of followed journals; answers one question after the other.

    Parameters
    ----------
    followers : Iterable of JournalFollower
        The journals.
    """

    def __init__(self, followers: Iterable[JournalFollower]) -> None:
        self._observers = [(follower, LogObserver(follower.store)) for follower in followers]
        self._lock = threading.Lock()

    def families(self, *, per_subscription: bool = False) -> list[Family]:
        """Return every metric that something is known of."""
        with self._lock:
            seen = [_observed(follower, observer) for follower, observer in self._observers]
        return collect(seen, per_subscription=per_subscription)


def _observed(follower: JournalFollower, observer: LogObserver) -> Observation:
    with follower.look(wait_s=_FIRST_WAIT_S) as look:
        # What was read before is shown to people with the trouble beside it; a figure has nothing beside it.
        if look is None or follower.trouble is not None:
            return unreadable(follower.store)
        found = figures_of(look.state, lambda queue: status_of(look, queue), now_ms=look.now_ms)
        rows = look.rows
    try:
        return observer.observe(found, None if rows is None else _since(follower, rows))
    except SparkQueueError:
        return unreadable(follower.store)


def _since(follower: JournalFollower, rows: pa.Table) -> RecordsSince:
    def records(first: int) -> list[Record]:
        return to_records_of(follower.store, rows.slice(first))

    return records
