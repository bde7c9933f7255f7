"""Purposes of options, and their typed form.

Users write and read times as ISO-8601 with an offset, because a bare time has two readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum
from typing import Literal

from spark_queue.errors import CallerError


def parse_timestamp(value: str) -> datetime:
    """Parse an ISO-8601 time that carries its offset.

    Raises
    ------
    ValueError
        When it is no ISO-8601 time.
    CallerError
        TIMESTAMP_AMBIGUOUS, showing both readings, when the offset is missing.
    """
    try:
        return in_utc(datetime.fromisoformat(value), value=value, where="the options")
    except (ValueError, OverflowError):
        # At either end of the calendar there is a time whose reading in UTC is in none.
        raise ValueError("an ISO-8601 time with offset, such as 2026-01-31T12:00:00Z") from None


def parse_moment(value: str) -> datetime:
    """Parse an ISO-8601 time that carries its offset, or a date, which stands for its beginning in UTC.

    Raises
    ------
    ValueError
        When it is neither.
    CallerError
        TIMESTAMP_AMBIGUOUS for a time without an offset.
    """
    try:
        return datetime.combine(date.fromisoformat(value), datetime.min.time(), UTC)
    except ValueError:
        return parse_timestamp(value)


def in_utc(time: datetime, *, value: str, where: str) -> datetime:
    """Return a time in UTC; one without an offset is refused (TIMESTAMP_AMBIGUOUS) with two readings that differ."""
    if time.tzinfo is not None:
        return time.astimezone(UTC)
    # Where this host's zone is UTC, somebody else's reading shows what is meant.
    utc, local = time.replace(tzinfo=UTC), time.astimezone()
    local = local if local.utcoffset() else time.replace(tzinfo=timezone(timedelta(hours=1)))
    raise CallerError("TIMESTAMP_AMBIGUOUS", value=value, where=where, utc=utc.isoformat(), local=local.isoformat())


def to_ms(time: datetime) -> int:
    """Return an aware time as whole milliseconds since 1970 UTC, rounded down."""
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


def to_text(at_ms: int | None, timespec: str = "seconds") -> str:
    """Return a time in UTC, to the second or as `datetime.isoformat` is told; None gives nothing."""
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec=timespec)


class Purpose(StrEnum):
    """The purpose of a set of Spark options."""

    QUEUE_STREAM = "queue stream"
    TOPIC_STREAM = "topic stream"
    TOPIC_BATCH = "topic batch"
    VIEW_BATCH = "view batch"
    WRITE_BATCH = "batch write"
    WRITE_STREAM = "stream write"


AUTO = "auto"
EXPLICIT = "explicit"

VIEWS = ("messages", "leases", "dead_letters", "history", "sink_commits", "subscriptions", "status")

#: Views that may span all queues; the others have the columns, or speak of the subscriptions, of one queue.
VIEWS_OF_ALL_QUEUES = frozenset({"history", "sink_commits", "status"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a message type's log: where a topic read starts (inclusive) or ends (exclusive)."""

    kind: Literal["earliest", "latest", "bookmark", "timestamp"]
    #: The bookmark, or milliseconds since 1970 UTC; 0 for earliest and latest.
    value: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options that every use of the source has."""

    journal: str
    #: Options of the object store, without their prefix; they may hold secrets.
    storage: Mapping[str, str] = field(repr=False)
    coordinator: str | None
    #: Where the caller's token is; the environment or the user's own file without it.
    token_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStreamOptions(Options):
    """Options of a stream that consumes a queue."""

    queue: str
    subscription: str
    ack_mode: str
    max_backlog: int
    filter: str | None
    columns: tuple[str, ...] | None
    min_partitions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStreamOptions(Options):
    """Options of a stream that replays a topic."""

    topic: str
    starting: Position
    fail_on_data_loss: bool
    columns: tuple[str, ...] | None
    min_partitions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBatchOptions(TopicStreamOptions):
    """Options of a batch read of a topic."""

    ending: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions(Options):
    """Options of a batch read of a view."""

    view: str
    queue: str | None
    #: A moment, a record number, or None for now.
    as_of: datetime | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(Options):
    """Options of a publish, batch or stream."""

    topic: str | None
    publisher: str | None
    sequence_column: str | None
    expires_after_ms: int | None
    deliver_after_ms: int | None
    txn_app_id: str | None
    txn_version: int | None
    txn_compare: str | None


#: The type of the options of each purpose.
TYPES: Mapping[Purpose, type[Options]] = {
    Purpose.QUEUE_STREAM: QueueStreamOptions,
    Purpose.TOPIC_STREAM: TopicStreamOptions,
    Purpose.TOPIC_BATCH: TopicBatchOptions,
    Purpose.VIEW_BATCH: ViewOptions,
    Purpose.WRITE_BATCH: WriteOptions,
    Purpose.WRITE_STREAM: WriteOptions,
}
