"""Records of barriers (R67 to R78)."""

from __future__ import annotations

from spark_queue.core.records.record import Body
from spark_queue.core.records.vocabulary import Kind


class BarriersDecided(Body, frozen=True, kw_only=True):
    """Messages that entered while the queue was set aside are barriers of it, or are not (R75)."""

    kind = Kind.BARRIERS_DECIDED
    shows_membership = True

    barrier: bool = False


class BarrierReleased(Body, frozen=True, kw_only=True):
    """Barriers leave the queue for the subscriptions of that moment (R70)."""

    kind = Kind.BARRIER_RELEASED
    shows_membership = True

    #: Their names.
    subscriptions: tuple[str, ...]


class BarrierReceived(Body, frozen=True, kw_only=True):
    """A subscription is done with a barrier, or gave up on it."""

    kind = Kind.BARRIER_RECEIVED

    #: Of one that was given up, or is hidden: how often it was delivered, and the last error.
    deliveries: int | None = None
    error: str | None = None
