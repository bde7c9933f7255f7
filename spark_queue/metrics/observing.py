"""Looking at journals from outside, as views do: nothing is started, and a journal that cannot be read breaks nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from spark_queue.clock import SystemClock
from spark_queue.core.records import Record
from spark_queue.errors import SparkQueueError
from spark_queue.journal.layout import Store
from spark_queue.journal.open import open_journal
from spark_queue.metrics.figures import JournalFigures, figures_of, with_heard
from spark_queue.metrics.history import LogHistory, QueueHistory
from spark_queue.metrics.samples import Family, Observation, PeerLag, collect
from spark_queue.protocol.discovery import read_advertisement, read_heard
from spark_queue.replication.lag import lag_of
from spark_queue.views import PointInTime, queue_status, state_at

#: Gives the records of a log from a number on.
RecordsSince: TypeAlias = "Callable[[int], Sequence[Record]]"


class LogObserver:
    """Observes one journal, again and again; what its log told before is kept, so that it costs what is new.

    Parameters
    ----------
    store : Store
        The journal's place.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Whose history is kept.
        self._journal_id = ""
        self._history = LogHistory()

    def observe(self, found: JournalFigures, records: RecordsSince | None) -> Observation:
        """Return what is to be told of a journal that somebody has looked at.

        Parameters
        ----------
        found
            What was seen.
        records
            Gives the records of the log from a number on; None while it is still being read.

        Raises
        ------
        JournalError
            STORE_FAILED, and what keeps the log from being read.
        """
        return Observation(
            journal=self._store.path,
            observed_at_ms=found.now_ms,
            figures=with_heard(found, read_heard(self._store, found.journal_id)),
            history=None if records is None else self._follow(found, records),
            lags=lags(self._store, found),
            coordinator_seen_at_ms=coordinator_seen_at_ms(self._store, found.journal_id),
        )

    def _follow(self, found: JournalFigures, records: RecordsSince) -> Mapping[str, QueueHistory]:
        if found.journal_id != self._journal_id or found.records < self._history.next_record:
            self._journal_id, self._history = found.journal_id, LogHistory()
        self._history.fold(records(self._history.next_record))
        return {name: each.copy() for name, each in self._history.queues.items()}


def observe(stores: Iterable[Store], *, per_subscription: bool = False) -> list[Family]:
    """Return the metrics of journals, each looked at once."""
    return collect([_observed(store) for store in stores], per_subscription=per_subscription)


def _observed(store: Store) -> Observation:
    try:
        return observe_point(LogObserver(store), state_at(open_journal(store)))
    except SparkQueueError:
        return unreadable(store)


def observe_point(observer: LogObserver, point: PointInTime) -> Observation:
    """Let a journal be observed as a view of it says.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    found = figures_of(point.state, lambda queue: queue_status(point, queue), now_ms=point.now_ms)
    return observer.observe(found, lambda first: point.records[first:])


def unreadable(store: Store) -> Observation:
    """Return what is to be told of a journal that cannot be read now."""
    return Observation(journal=store.path, observed_at_ms=SystemClock().wall_ms())


def coordinator_seen_at_ms(store: Store, journal_id: str) -> int | None:
    """Return when a coordinator said last that it serves; None when none does, or it ended in good order.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    advertisement = read_advertisement(store, journal_id)
    return None if advertisement is None else advertisement.renewed_at_ms


def lags(store: Store, found: JournalFigures) -> Mapping[str, PeerLag]:
    """Return how far a journal is behind each of its peers, by name; their logs are read for it."""
    found_lags = {}
    for name, peer in found.definitions.peers.items():
        try:
            records, seconds = lag_of(store, peer, found.peers[name].watermark, now_ms=found.now_ms)
            found_lags[name] = PeerLag(readable=True, records_behind=records, seconds_behind=seconds)
        except SparkQueueError:
            found_lags[name] = PeerLag(readable=False, records_behind=0, seconds_behind=0.0)
    return found_lags
