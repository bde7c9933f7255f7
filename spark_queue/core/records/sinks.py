"""Records of attempts to append to a sink (DESIGN 19)."""

from __future__ import annotations

from spark_queue.core.records.record import Body
from spark_queue.core.records.vocabulary import Kind, NumberRanges

#: Messages of which a batch says something else than the rest of it: outcome, due time in milliseconds, error, bookmarks.
ExceptionRows = tuple[str, int | None, str | None, NumberRanges]


class OfAttempt(Body, frozen=True, kw_only=True):
    """A record of an attempt, by its number."""

    attempt: int


class Prepared(OfAttempt, frozen=True, kw_only=True):
    """A lease is in doubt: its batch may come to stand in the sink from now on."""

    kind = Kind.PREPARED
    critical = silent = True

    table: str
    table_id: str
    exceptions: tuple[ExceptionRows, ...]


class Landed(OfAttempt, frozen=True, kw_only=True):
    """The batch stands in its sink."""

    kind = Kind.LANDED
    critical = silent = True

    table: str
    #: That of the table.
    version: int | None = None
    #: Whether somebody says so who could not read the sink.
    forced: bool = False


class Fenced(OfAttempt, frozen=True, kw_only=True):
    """The batch stands in no sink, and never will."""

    kind = Kind.FENCED
    critical = silent = True

    table: str
    forced: bool = False


class SinkUnreadable(OfAttempt, frozen=True, kw_only=True):
    """Nobody could decide about an attempt; changes nothing."""

    kind = Kind.SINK_UNREADABLE

    error: str
    #: Whether the sink could be read, and its fence not be written.
    read: bool = False
