"""The page of one queue, now or at a past moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from spark_queue.core.replies import QueueStatus
from spark_queue.core.state import status
from spark_queue.core.state.findings import slow_after_s
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.log_history import Histogram, QueueHistory
from spark_queue.dashboard import charts, formatting
from spark_queue.errors import ConfigError
from spark_queue.following.follower import FollowedView
from spark_queue.following.history import Series
from spark_queue.protocol.discovery import Heard, seen_at_ms

#: The spans that a chart may have, in milliseconds; None for all that there is.
SPANS_MS: dict[str, int | None] = {
    "15min": 900_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000, "7d": 604_800_000, "30d": 2_592_000_000, "all": None,
}  # fmt: skip

#: Units of an age, with their length in seconds, and up to which age each is used.
_AGE_UNITS = ((1, "seconds", 300), (60, "minutes", 3 * 3_600), (3_600, "hours", 4 * 86_400), (86_400, "days", float("inf")))

#: Moments of a chart.
_POINTS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRow:
    """One subscription."""

    name: str
    filter: str | None
    max_backlog: int
    backlog: int
    #: The number of messages that it could be granted now.
    waiting: int
    lease: int | None
    lease_messages: int | None
    #: The time for which its batch has been running, and since its last call, in seconds.
    batch_s: float | None
    seen_s: float
    #: Whether its coordinator reports polls that find nothing: by the log alone an idle consumer looks like one that is gone.
    is_told: bool
    has_left: bool
    receives: bool
    #: Whether its batch runs for longer than is usual.
    is_slow: bool
    #: Whether its lease ran out, and no record has ended it.
    is_overdue: bool
    alarm: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """One lease that has not ended."""

    number: int
    subscription: str
    messages: int
    first: int | None
    granted_ms: int
    #: Time until it ends, in seconds; negative when its end is due.
    left_s: float
    is_proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time that charts show."""

    name: str
    start_ms: int
    end_ms: int

    @property
    def step_s(self) -> int:
        """Distance of two places of the slider."""
        return max(1, (self.end_ms - self.start_ms) // 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """One queue at one moment."""

    status: QueueStatus
    #: Whether it was paused by hand; an alarm stops subscriptions, too.
    is_paused: bool
    subscriptions: Sequence[SubscriptionRow]
    leases: Sequence[LeaseRow]
    #: The queue that its dead letters go to, and the one whose dead letters come to it.
    letters_to: str | None
    letters_from: str | None


def figures(state: JournalState, queue: str, now_ms: int, heard: Heard, history: QueueHistory | None = None) -> QueueFigures:
    """Return a queue's figures from a state, and from its coordinator's times of planners that found nothing.

    `history` tells how long batches took before.
    """
    ledger = state.ledger(queue)
    return QueueFigures(
        status=status.queue_status(state, queue, now_ms=now_ms),
        is_paused=ledger.paused,
        subscriptions=_subscriptions(ledger, now_ms, heard, {} if history is None else history.lease_duration),
        leases=_leases(ledger, now_ms),
        letters_to=ledger.definition.dead_letter_queue,
        letters_from=state.definitions.source_of(queue),
    )


def _subscriptions(ledger: QueueLedger, now_ms: int, heard: Heard, durations: Mapping[str, Histogram]) -> list[SubscriptionRow]:
    backlogs, rows = ledger.backlogs(), []
    free = ledger.rows[State.AVAILABLE] | ledger.due(now_ms)
    for name, known in sorted(ledger.subscriptions.items()):
        leases = [each for each in ledger.leases.values() if each.subscription == name and ledger.is_open(each)]
        # A receiver has many, and the oldest tells most; what was settled by hand is no batch any more.
        lease = min(leases, key=lambda each: each.begun_at_ms, default=None) if known.receives else ledger.open_lease(known)
        queue = ledger.definition.name
        batch_s = None if lease is None else max(0, now_ms - lease.begun_at_ms) / 1_000
        seen_ms = seen_at_ms(known.last_seen_at_ms, heard, queue=queue, subscription=name, now_ms=now_ms)
        matching = None if known.filter is None else ledger.selection.matches.get(known.filter)
        rows.append(
            SubscriptionRow(
                name=name,
                filter=known.filter,
                max_backlog=known.max_backlog,
                backlog=backlogs[name],
                waiting=len(free if matching is None else free & matching),
                lease=None if lease is None else lease.number,
                lease_messages=None if lease is None else sum(len(ledger.outstanding(each)) for each in (leases or [lease])),
                batch_s=batch_s,
                seen_s=max(0, now_ms - seen_ms) / 1_000,
                is_told=name in heard.get(queue, {}),
                has_left=known.left,
                receives=known.receives,
                is_slow=(batch_s or 0) > slow_after_s(durations.get(name)),
                is_overdue=lease is not None and lease.due_at_ms <= now_ms,
                alarm=None if known.alarm is None else known.alarm.error,
            )
        )
    return rows


def _leases(ledger: QueueLedger, now_ms: int) -> list[LeaseRow]:
    found = [lease for lease in ledger.leases.values() if ledger.is_open(lease)]
    return [
        LeaseRow(
            number=lease.number,
            subscription=lease.subscription,
            messages=len(ledger.outstanding(lease)),
            first=lease.leased.min() if lease.leased else None,
            granted_ms=lease.granted_at_ms,
            left_s=(lease.due_at_ms - now_ms) / 1_000,
            is_proven=lease.proven,
        )
        for lease in sorted(found, key=lambda lease: lease.due_at_ms)
    ]


def span_of(look: FollowedView, queue: str, name: str, end: str | None) -> Span:
    """Return the span that an address asks for."""
    if name not in SPANS_MS:
        raise ConfigError("BAD_VALUE", key="span", where="the address", value=name, expected=f"one of {', '.join(SPANS_MS)}")
    end_ms = min(look.now_ms, formatting.moment_ms(end, key="end") or look.now_ms)
    length_ms = SPANS_MS[name]
    if length_ms is None:
        since_ms = look.now_ms - 3_600_000 if look.history is None else look.history.since_ms(queue)
        return Span(name=name, start_ms=min(since_ms, end_ms - 60_000), end_ms=end_ms)
    return Span(name=name, start_ms=end_ms - length_ms, end_ms=end_ms)


def as_of(at_ms: int) -> datetime:
    """Return a moment in the form of views."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC)


def queue_charts(look: FollowedView, queue: str, span: Span, marker_ms: int | None) -> list[charts.Chart]:
    """Draw a queue over a span; nothing where its history is still being read."""
    if look.history is None:
        return []
    times_ms = np.unique(np.linspace(span.start_ms, span.end_ms, _POINTS + 1).astype(np.int64))
    found = look.history.series(look.state, queue, times_ms)
    began = np.where(times_ms >= look.history.since_ms(queue), 0.0, np.nan)
    depth, letters = (np.asarray(each, np.float64) + began for each in (found.depth, found.dead_letters))
    fastest = max(float(found.rate_in.max(initial=0)), float(found.rate_out.max(initial=0)))
    factor, pace = (1.0, "messages a second") if fastest >= 2 else (60.0, "messages a minute")
    oldest_s = float(np.nanmax(np.append(found.oldest_age_s, 0.0)))
    length, unit = next((length, unit) for length, unit, most in _AGE_UNITS if oldest_s <= most)
    rates = [("in", "in", found.rate_in * factor), ("out", "out", found.rate_out * factor)]
    return [
        _depth_chart(found, depth, began, marker_ms),
        charts.chart("Rates", pace, times_ms, rates, marker_ms=marker_ms),
        charts.chart("Age of the oldest", unit, times_ms, [("age", "age", found.oldest_age_s / length)], marker_ms=marker_ms),
        charts.chart("Dead letters", "standing", times_ms, [("dead", "dead letters", letters)], marker_ms=marker_ms),
        *_transfer_chart(found, marker_ms),
    ]


def _depth_chart(found: Series, depth: charts.Values, began: charts.Values, marker_ms: int | None) -> charts.Chart:
    """Draw the depth; of a replicated queue, that of messages owned here, beside those of others (R119)."""
    if found.remote is None:
        return charts.chart("Depth", "messages in the queue", found.times_ms, [("depth", "depth", depth)], marker_ms=marker_ms)
    lines = [("depth", "owned here", depth), ("remote", "owned elsewhere", found.remote + began)]
    return charts.chart("Depth", "messages in the queue", found.times_ms, lines, marker_ms=marker_ms)


def _transfer_chart(found: Series, marker_ms: int | None) -> Iterator[charts.Chart]:
    """Draw the messages that came and went by transfers since the left edge of the charts."""
    if found.transferred_in is not None and found.transferred_out is not None:
        both = (("in", "came here", found.transferred_in), ("out", "given away", found.transferred_out))
        lines = [(name, label, np.asarray(total - total[0], np.float64)) for name, label, total in both]
        yield charts.chart("Transferred", "messages since the left edge", found.times_ms, lines, marker_ms=marker_ms)
