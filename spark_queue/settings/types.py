"""Purposes of options, and their typed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal


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
