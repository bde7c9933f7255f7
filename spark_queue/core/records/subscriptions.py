"""Records of subscriptions, of the processes that plan them, and of their expressions."""

from __future__ import annotations

from spark_queue.core.records.record import About, Body
from spark_queue.core.records.vocabulary import Incarnation, Kind


class Subscribed(Body, frozen=True, kw_only=True):
    """A subscription begins, or asks for something else (R118)."""

    kind = Kind.SUBSCRIBED
    about = About.QUEUE

    ack_mode: str
    max_backlog: int
    #: Spark SQL; None for everything.
    filter: str | None
    #: Where there are principals: its own, and the filters that hide messages from that one.
    principal: str | None = None
    entitlement: tuple[str, ...] = ()
    #: Whether it ends with its receiver (R140).
    ends: bool = False


class Unsubscribed(Body, frozen=True):
    """A subscription ends."""

    kind = Kind.UNSUBSCRIBED
    about = About.QUEUE


class Planned(Body, frozen=True, kw_only=True):
    """A record of one start of a planner."""

    incarnation: Incarnation


class Called(Planned, frozen=True, kw_only=True):
    """A record that a numbered call of a planner made (P1)."""

    call: int


class Attached(Called, frozen=True, kw_only=True):
    """A planner start owns the subscription from now on (P1)."""

    kind = Kind.ATTACHED

    #: The bookmark at which the run ends that reads what is there.
    until: int | None = None


class Left(Planned, frozen=True, kw_only=True):
    """A planner says goodbye."""

    kind = Kind.LEFT


class ExpressionFailed(Body, frozen=True, kw_only=True):
    """An expression failed on messages that came; changes nothing else."""

    kind = Kind.EXPRESSION_FAILED

    #: Number of messages, and the bookmarks of the first of them.
    messages: int
    examples: tuple[int, ...]
