"""What requests and replies are made of."""

from __future__ import annotations

import msgspec

from spark_queue.core.records import Ranges

#: `[epoch, n]`: which start of a planner speaks; pairs compare in order (DESIGN 15.6).
Incarnation = tuple[int, int]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Which execution of a micro-batch speaks (P4): the incarnation and lease that were current when fn began."""

    incarnation: Incarnation
    #: 0 when the batch has no lease (the empty first batch).
    lease: int


class OutcomeRows(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome for some bookmarks."""

    outcome: str
    ranges: Ranges
    #: With cancel: how long to wait before the next delivery.
    retry_after_ms: int | None = None
    error: str | None = None


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """How full the queue is; shown in Spark's progress."""

    depth: int
    available: int
    leased: int
    oldest_age_ms: int
