"""The figures of the first page: each queue of each journal in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.faults import untold
from spark_queue.dashboard import charts
from spark_queue.following.follower import JournalFollower
from spark_queue.following.history import JournalHistory, Spark
from spark_queue.following.journal_look import JournalLook, pace_of, status_of

#: The span of the little charts, in milliseconds.
SPARK_MS = 3_600_000

#: Distance of two points of a little chart, in milliseconds.
SPARK_STEP_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One queue."""

    name: str
    status: QueueStatus | None
    #: Why it has no figures.
    trouble: str | None
    rate_in: float | None = None
    rate_out: float | None = None
    line: str = ""
    area: str = ""
    #: Highest depth of the span.
    highest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRows:
    """One journal."""

    name: str
    path: str
    trouble: str | None
    #: Whether its log is being read for the first time.
    is_reading: bool
    has_history: bool = False
    queues: Sequence[QueueRow] = ()
    records: int = 0
    now_ms: int = 0


def journal_rows(follower: JournalFollower) -> JournalRows:
    """Return the rows of a journal."""
    with follower.look() as look:
        if look is None:
            reading = follower.trouble is None
            return JournalRows(name=follower.name, path=follower.store.path, trouble=follower.trouble, is_reading=reading)
        return JournalRows(
            name=follower.name,
            path=follower.store.path,
            trouble=follower.trouble,
            is_reading=False,
            has_history=look.history is not None,
            queues=[queue_row(look, name) for name in look.state.definitions.queues],
            records=look.state.next_record,
            now_ms=look.now_ms,
        )


def queue_row(look: JournalLook, name: str) -> QueueRow:
    """Return the row of one queue."""
    if name in look.state.troubles:
        return QueueRow(name=name, status=None, trouble=str(look.state.troubles[name]))
    try:
        found, pace = status_of(look, name), pace_of(look, name)
    except Exception as fault:  # noqa: BLE001  # Whatever it is, the others are shown.
        return QueueRow(name=name, status=None, trouble=untold(fault))
    if look.history is None or pace is None:
        return QueueRow(name=name, status=found, trouble=None)
    spark = _spark(look, look.history, name)
    return QueueRow(
        name=name,
        status=found,
        trouble=None,
        rate_in=pace.rate_in,
        rate_out=pace.rate_out,
        line=spark.line,
        area=spark.area,
        highest=spark.highest,
    )


def _spark(look: JournalLook, history: JournalHistory, name: str) -> Spark:
    """Return the little chart of a queue: of whole minutes, so that it is drawn again only when it looks otherwise."""
    end_ms = -(-look.now_ms // SPARK_STEP_MS) * SPARK_STEP_MS
    drawn_of = (end_ms, *history.changes(look.state, name))
    known = history.sparks.get(name)
    if known is None or known.drawn_of != drawn_of:
        times_ms = np.arange(end_ms - SPARK_MS, end_ms + 1, SPARK_STEP_MS)
        depth = history.depth(look.state, name, times_ms)
        line, area = charts.spark(depth.astype(np.float64))
        known = history.sparks[name] = Spark(drawn_of=drawn_of, line=line, area=area, highest=int(depth.max()))
    return known
