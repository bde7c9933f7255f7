"""Looking at journals from outside, as views do: nothing is started, and a journal that cannot be read breaks nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_queue.clock import SystemClock
from spark_queue.errors import SparkQueueError
from spark_queue.journal.layout import Store
from spark_queue.journal.open import open_journal
from spark_queue.metrics.figures import JournalFigures, figures_of
from spark_queue.metrics.history import LogHistory
from spark_queue.metrics.samples import Family, Observation, PeerLag, collect
from spark_queue.protocol.discovery import read_advertisement
from spark_queue.replication.lag import records_behind
from spark_queue.views import PointInTime, queue_status, state_at


class LogObserver:
    """Observes one journal, again and again; what its log told before is kept.

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

    def observe(self, point: PointInTime | None = None) -> Observation:
        """Return how the journal is now.

        Parameters
        ----------
        point : PointInTime or None
            A look at the journal as it is now, by whoever has one.
        """
        try:
            return self._observe(state_at(open_journal(self._store)) if point is None else point)
        except SparkQueueError:
            return Observation(journal=self._store.path, observed_at_ms=SystemClock().wall_ms())

    def _observe(self, point: PointInTime) -> Observation:
        state = point.state
        if state.journal_id != self._journal_id or len(point.records) < self._history.next_record:
            self._journal_id, self._history = state.journal_id, LogHistory()
        self._history.fold(point.records[self._history.next_record :])
        found = figures_of(state, lambda queue: queue_status(point, queue), now_ms=point.now_ms)
        return Observation(
            journal=self._store.path,
            observed_at_ms=point.now_ms,
            figures=found,
            history={name: each.copy() for name, each in self._history.queues.items()},
            lags=lags(self._store, found),
            coordinator_seen_at_ms=coordinator_seen_at_ms(self._store, state.journal_id),
        )


def observe(stores: Iterable[Store], *, per_subscription: bool = False) -> list[Family]:
    """Return the metrics of journals, each looked at once."""
    return collect([LogObserver(store).observe() for store in stores], per_subscription=per_subscription)


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
        behind, unread = records_behind(store, peer, found.peers[name].watermark)
        seconds = max(0, found.now_ms - behind[0].at_ms) / 1_000 if behind else 0.0
        found_lags[name] = PeerLag(readable=unread is None, records_behind=len(behind), seconds_behind=seconds)
    return found_lags
