"""Records of leases and of their runs."""

from __future__ import annotations

from spark_queue.core.records.record import About, Body
from spark_queue.core.records.subscriptions import Called, Planned
from spark_queue.core.records.vocabulary import Kind


class Granted(Called, frozen=True, kw_only=True):
    """Messages are leased to a subscription."""

    kind = Kind.GRANTED
    shows_membership = silent = True

    #: The most messages that the planner asked for.
    limit: int
    #: Whether the one message is a barrier.
    barrier: bool = False


class Resumed(Called, frozen=True, kw_only=True):
    """A lease is these messages from now on, for a planner start (P2)."""

    kind = Kind.RESUMED
    shows_membership = silent = True

    #: Whether it counts as a delivery.
    counted: bool
    #: Number of runs of its batch in a row that nobody heard the end of.
    vanished_runs: int
    barrier: bool = False


class Renewed(Planned, frozen=True, kw_only=True):
    """A lease ends later."""

    kind = Kind.RENEWED
    about = About.LEASE
    silent = True

    #: Of a receiver: every lease of its start up to this one, each within its own limit (R136); None where the record names one.
    newest: int | None = None


class Claimed(Called, frozen=True, kw_only=True):
    """One planner start alone gets the rows of an at-most-once lease (R16)."""

    kind = Kind.CLAIMED
    about = About.LEASE


class Lapsed(Body, frozen=True):
    """An at-most-once lease ran out unproven."""

    kind = Kind.LAPSED


class Outcomes(Body, frozen=True, kw_only=True):
    """Outcomes of messages of a batch, or the end of its run; the reason tells which."""

    kind = Kind.OUTCOMES
    settles = silent = True

    error: str | None = None
    #: Whether the proof of the batch gives it back.
    cancel: bool = False
    #: Whether they count at once: of messages that a receiver had at most once, which keep no backlog and no key any more (R140).
    final: bool = False


class Refused(Body, frozen=True, kw_only=True):
    """Outcomes of a receiver that came too late; the reason is a `TooLate`. They change nothing."""

    kind = Kind.REFUSED
    silent = True

    outcome: str
    #: The subscription that has the messages now.
    holder: str | None = None


class Proven(Body, frozen=True):
    """Spark has committed the batch of a lease."""

    kind = Kind.PROVEN
    about = About.LEASE
    silent = True
