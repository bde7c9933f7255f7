"""Records that give messages back to their queue, or end them, and of pauses."""

from __future__ import annotations

from typing import Annotated

import msgspec

from spark_queue.core.records.record import About, Body
from spark_queue.core.records.vocabulary import Count, ErrorText, Kind, Name


class Valued(Body, frozen=True, kw_only=True):
    """A record of the owner of messages, or about one: it gives them their value (PROTOCOL 10)."""

    life: Count = 0
    #: A `Stage`.
    stage: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0
    term: Count = 0
    #: The name of an instance; empty for the one whose log it is.
    owner: str = ""


class Returned(Body, frozen=True, kw_only=True):
    """Leased messages are back in their queue."""

    kind = Kind.RETURNED
    settles = shows_membership = True

    #: Whether the delivery is taken back that the grant counted.
    undelivered: bool = False
    #: Whether a receiver ended without a word while it had them (R138).
    marked: bool = False
    #: The most messages of a next grant that is no part of a failed batch.
    limit: int | None = None
    #: Whether the one message failed alone, and whether that counts against it at once.
    alone: bool = False
    counts: bool = False
    error: str | None = None


class Removed(Valued, frozen=True, kw_only=True):
    """Messages leave their queue: the delete marker."""

    kind = Kind.REMOVED
    settles = shows_membership = True

    #: Of dead letters: how often each was delivered and cancelled, and the last error.
    deliveries: Count | None = None
    cancels: Count | None = None
    error: ErrorText | None = None
    #: The dead-letter queue that is done with these letters.
    settled_in: Name | None = None


class DeadLettered(Valued, frozen=True, kw_only=True):
    """Dead letters come to their dead-letter queue."""

    kind = Kind.DEAD_LETTERED

    #: The queue that they were in.
    source: Name
    deliveries: Count
    cancels: Count
    error: ErrorText | None = None


class Redriven(Valued, frozen=True, kw_only=True):
    """Dead letters are back in their queue, as if never delivered; in the dead-letter queue they are gone."""

    kind = Kind.REDRIVEN


class Deferred(Body, frozen=True):
    """Messages were acknowledged before their turn (R83)."""

    kind = Kind.DEFERRED
    shows_membership = True


class Paused(Body, frozen=True, kw_only=True):
    """A queue grants nothing, by hand; or a subscription only lone messages, in an alarm."""

    kind = Kind.PAUSED
    about = About.QUEUE

    error: str | None = None


class Unpaused(Body, frozen=True):
    """A pause, or an alarm, is over."""

    kind = Kind.UNPAUSED
    about = About.QUEUE
