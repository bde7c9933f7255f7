"""Purposes of Spark options, and the options of each in their typed form: a field says which option fills it, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.settings.option import Option, either, option
from spark_queue.settings.parsers import (
    Position,
    one_of,
    parse_bookmark,
    parse_boolean,
    parse_columns,
    parse_compare,
    parse_name,
    parse_position_time,
    parse_text,
    whole,
)
from spark_queue.settings.timestamps import parse_timestamp


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

VIEWS = ("messages", "leases", "dead_letters", "history", "sink_commits", "table_changes", "subscriptions", "status")

#: Views that may span all queues; the others have the columns, or speak of the subscriptions, of one queue.
VIEWS_OF_ALL_QUEUES = frozenset({"history", "sink_commits", "table_changes", "status"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options that every use of the source has."""

    journal: str = option(parse_text, "Path of the journal; also load(path), save(path), start(path).", required=True)
    #: Options of the object store, without their prefix; they may hold secrets.
    storage: Mapping[str, str] = field(repr=False)
    coordinator: str | None = option(
        parse_text, "Addresses of coordinators on other hosts, such as a:7337,b:7337; default: found or started here."
    )
    token_file: str | None = option(
        parse_text, "File on the driver with the caller's token, read again when the token is refused; default: the environment's."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions(Options):
    """Options of a read of rows."""

    columns: tuple[str, ...] | None = option(parse_columns, "Columns to read, separated by commas; default: all.")
    min_partitions: int | None = option(
        whole(1), "Fewest partitions of a micro-batch; default: even pieces of at most 100,000 rows."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStreamOptions(RowOptions):
    """Options of a stream that consumes a queue."""

    queue: str = option(parse_name, "The queue to consume.", required=True)
    subscription: str = option(parse_name, "Name of this consumer; one for each running query.", required=True)
    ack_mode: str = option(
        one_of(AUTO, EXPLICIT), "auto: a finished micro-batch is acknowledged. explicit: rows are settled by hand.", AUTO
    )
    max_backlog: int = option(
        whole(0), "Most messages leased to this subscription at once, hence in one micro-batch (R24).", "100000"
    )
    filter: str | None = option(
        parse_text, "SQL condition: only messages that match it are given to this subscription (R49); default: all."
    )


def _starting(default: str) -> Any:
    """Return the field of where a read of a topic starts."""
    about = "ISO-8601 time with offset; counts from when a message was published."
    return either(
        Option("startingBookmark", parse_bookmark, "earliest, latest or a bookmark, inclusive.", default),
        Option("startingTimestamp", parse_position_time, about),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStreamOptions(RowOptions):
    """Options of a stream that replays a topic."""

    topic: str = option(parse_name, "The topic to replay, without leases (R8).", required=True)
    starting: Position = _starting("latest")  # noqa: RUF009 - it gives a field.
    fail_on_data_loss: bool = option(
        parse_boolean,
        "Whether a read fails if retention has removed messages; false begins at the first kept one, with a warning.",
        "true",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBatchOptions(TopicStreamOptions):
    """Options of a batch read of a topic."""

    starting: Position = _starting("earliest")  # noqa: RUF009 - it gives a field.
    ending: Position = either(  # noqa: RUF009 - it gives a field.
        Option("endingBookmark", parse_bookmark, "earliest, latest or a bookmark, exclusive.", "latest"),
        Option(
            "endingTimestamp",
            parse_position_time,
            "ISO-8601 time with offset, exclusive; counts from when a message was published.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions(Options):
    """Options of a batch read of a view."""

    view: str = option(one_of(*VIEWS), f"One of {', '.join(VIEWS)}.", "messages")
    queue: str | None = option(parse_name, f"The queue to look at; may be absent for {', '.join(sorted(VIEWS_OF_ALL_QUEUES))}.")
    #: A moment, a record number, or None for now.
    as_of: datetime | int | None = either(  # noqa: RUF009 - it gives a field.
        Option("timestampAsOf", parse_timestamp, "State at a past moment: ISO-8601 time with offset; default: now."),
        Option("recordAsOf", whole(0), "State right after a record of the control log."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(Options):
    """Options of a publish, batch or stream."""

    topic: str | None = option(parse_name, "The topic, or a queue's name, to publish to; default: the rows' own column topic.")
    publisher: str | None = option(parse_name, "Name of the publisher, by which duplicates are dropped (R95).")
    sequence_column: str | None = option(parse_text, "BIGINT column that numbers the publisher's rows, ascending.")
    expires_after_ms: int | None = option(parse_duration_ms, 'Age at which the rows expire, such as "1h" (R60).')
    deliver_after_ms: int | None = option(
        parse_duration_ms, 'Delay before any queue delivers the rows, such as "10m", from their commit on (R128).'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriteOptions(WriteOptions):
    """Options of a publish of a batch."""

    txn_app_id: str | None = option(parse_text, "With txnVersion: a repeated write is dropped.")
    txn_version: int | None = option(whole(0), "With txnAppId: number of the write; must rise, unless each id has one write.")
    txn_compare: str = option(parse_compare, "Whether repeats must have the same rows, or (`version`) are not compared.", "rows")


#: The type of the options of each purpose.
TYPES: Mapping[Purpose, type[Options]] = {
    Purpose.QUEUE_STREAM: QueueStreamOptions,
    Purpose.TOPIC_STREAM: TopicStreamOptions,
    Purpose.TOPIC_BATCH: TopicBatchOptions,
    Purpose.VIEW_BATCH: ViewOptions,
    Purpose.WRITE_BATCH: BatchWriteOptions,
    Purpose.WRITE_STREAM: WriteOptions,
}
