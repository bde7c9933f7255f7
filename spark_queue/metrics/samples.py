"""From observations of journals to samples: the one collector, which asks the table for the metrics.

Looking at journals from outside, as views do: nothing is started, and a journal that cannot be read breaks nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from spark_queue.clock import SystemClock
from spark_queue.core.records import Removal, Return
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.log_history import LEASE_BOUNDS_S, Histogram, QueueHistory
from spark_queue.errors import SparkQueueError
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store
from spark_queue.metrics.figures import JournalFigures, PeerFigures, SubscriptionFigures, figures_of, with_heard
from spark_queue.metrics.table import METRICS, Metric, MetricKind, Scope
from spark_queue.protocol.discovery import read_advertisement
from spark_queue.replication.restored import lag_of
from spark_queue.views import JournalView, queue_status, state_at


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLag:
    """How far a journal is behind a peer."""

    #: Whether the peer's log could be read.
    readable: bool
    records_behind: int
    seconds_behind: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFigures:
    """The facts that a process which serves a journal, or stands by, knows of itself."""

    serving: bool
    commit_duration: Histogram
    refusals: Mapping[str, int]
    store_requests: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at a journal."""

    #: Its path.
    journal: str
    observed_at_ms: int
    #: None when it cannot be read.
    figures: JournalFigures | None = None
    lags: Mapping[str, PeerLag] = field(default_factory=dict)
    coordinator_seen_at_ms: int | None = None
    process: ProcessFigures | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One series at one moment."""

    #: In the order of the metric's labels.
    labels: tuple[str, ...]
    value: float | Histogram


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and its series."""

    metric: Metric
    samples: Sequence[Sample]


#: The figures of one thing: the values of its labels, and its figures by name.
_Row = tuple[tuple[str, ...], Mapping[str, Any]]


def collect(observations: Iterable[Observation], *, per_subscription: bool = False) -> list[Family]:
    """Return every metric that something is known of, in the order of the table."""
    rows: dict[Scope, list[_Row]] = {scope: [] for scope in Scope}
    for seen in observations:
        for scope, row in _rows(seen, per_subscription=per_subscription):
            rows[scope].append(row)
    families = (Family(metric, list(_samples(metric, rows[metric.scope]))) for metric in METRICS)
    return [family for family in families if family.samples]


def _samples(metric: Metric, rows: Iterable[_Row]) -> Iterator[Sample]:
    for labels, figures in rows:
        if metric.figure not in figures:
            continue
        value = figures[metric.figure]
        if isinstance(value, Mapping):
            yield from (Sample((*labels, part), float(count)) for part, count in sorted(value.items()))
        elif metric.kind is MetricKind.HISTOGRAM:
            yield Sample(labels, value)
        else:
            # Nothing has no age: that of an empty queue is 0, so that its series does not come and go.
            yield Sample(labels, float(value or 0))


def _rows(seen: Observation, *, per_subscription: bool) -> Iterator[tuple[Scope, _Row]]:
    journal, found = seen.journal, seen.figures
    about: dict[str, Any] = {"observed_at_s": seen.observed_at_ms / 1_000}
    if found is not None or seen.process is None:
        # A stand-in has not looked.
        about["up"] = found is not None
    if found is not None:
        seen_at_ms = seen.coordinator_seen_at_ms
        about |= {"records": found.records, "epoch": found.epoch, "coordinator_seen_at_s": (seen_at_ms or 0) / 1_000}
    yield Scope.JOURNAL, ((journal,), about)
    if seen.process is not None:
        process = {name: getattr(seen.process, name) for name in ("serving", "commit_duration", "refusals", "store_requests")}
        yield Scope.PROCESS, ((journal,), process)
    if found is None:
        return
    for status in found.statuses:
        history = None if found.history is None else found.history.get(status.queue, QueueHistory())
        collects_letters = found.definitions.source_of(status.queue) is not None
        yield Scope.QUEUE, ((journal, status.queue), {**_of_queue(status, history), "collects_letters": collects_letters})
        for each in found.subscriptions[status.queue] if per_subscription else ():
            yield Scope.SUBSCRIPTION, ((journal, status.queue, each.subscription), _of_subscription(each, history))
    for queue in found.set_aside:
        yield Scope.QUEUE, ((journal, queue), {"up": False})
    for name, peer in found.peers.items():
        yield Scope.PEER, ((journal, name), _of_peer(found, name, peer, seen.lags.get(name)))


def _of_queue(status: QueueStatus, history: QueueHistory | None) -> dict[str, Any]:
    row = {**asdict(status), "up": True, "alarm": status.alarm is not None}
    if history is not None:
        duration = Histogram(LEASE_BOUNDS_S)
        for each in history.lease_duration.values():
            duration.add(each)
        row |= {"delivery_delay": history.delivery_delay, "lease_duration": duration}
        # Those that have not happened, too: a series that begins with its first event has no rate there.
        row |= {"removed": Counter(dict.fromkeys(Removal, 0)), "returned": Counter(dict.fromkeys(Return, 0))}
        row["removed"].update(history.removed)
        row["returned"].update(history.returned)
    return row


def _of_subscription(figures: SubscriptionFigures, history: QueueHistory | None) -> dict[str, Any]:
    row = asdict(figures)
    if history is not None:
        row["lease_duration"] = history.lease_duration.get(figures.subscription, Histogram(LEASE_BOUNDS_S))
    return row


def _of_peer(found: JournalFigures, name: str, peer: PeerFigures, lag: PeerLag | None) -> dict[str, Any]:
    row = {each: getattr(peer, each) for each in ("remote", "requested", "transferred_in", "transferred_out", "disagreements")}
    if lag is not None:
        row["readable"] = lag.readable
        if lag.readable:
            row |= {"records_behind": lag.records_behind, "seconds_behind": lag.seconds_behind}
    if name in found.told:
        told = found.told[name]
        row |= {
            "reachable": told.silent_ms < found.definitions.replication.unreachable_after_ms, "silent_s": told.silent_ms / 1_000,
            "trouble": told.trouble is not None, "rows_copied": told.rows_copied, "bytes_copied": told.bytes_copied,
        }  # fmt: skip
    return row


def observe(stores: Iterable[Store], *, per_subscription: bool = False) -> list[Family]:
    """Return the metrics of journals, each looked at once."""
    return collect([_observed(store) for store in stores], per_subscription=per_subscription)


def _observed(store: Store) -> Observation:
    try:
        return observation(store, figures_at(state_at(open_journal(store))))
    except SparkQueueError:
        return unreadable(store)


def figures_at(view: JournalView) -> JournalFigures:
    """Return the figures of a journal as a view has it."""
    found = figures_of(view.state, partial(queue_status, view), now_ms=view.now_ms)
    history = {name: each.copy() for name, each in view.log_history().queues.items()}
    return replace(with_heard(found, view.heard()), history=history)


def observation(store: Store, found: JournalFigures) -> Observation:
    """Return the observation of a journal: its figures, and facts of its store."""
    return Observation(
        journal=store.path,
        observed_at_ms=found.now_ms,
        figures=found,
        lags=lags(store, found),
        coordinator_seen_at_ms=coordinator_seen_at_ms(store, found.journal_id),
    )


def unreadable(store: Store) -> Observation:
    """Return the observation of a journal that cannot be read now."""
    return Observation(journal=store.path, observed_at_ms=SystemClock().wall_ms())


def coordinator_seen_at_ms(store: Store, journal_id: str) -> int | None:
    """Return when a coordinator said last that it serves; None when none does, or it ended in good order."""
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
