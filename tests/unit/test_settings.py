"""The registry of options: what is read, what is refused, and that the tables for people come from it (DESIGN 9)."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core.definitions.definition import TABLES, Entitlement
from spark_queue.core.definitions.keys import keys_of
from spark_queue.errors import CallerError, ConfigError, SparkQueueError
from spark_queue.settings.parsers import Position
from spark_queue.settings.read import load_definitions, read_options, read_purpose
from spark_queue.settings.registry import key_rows, option_rows
from spark_queue.settings.timestamps import parse_timestamp, to_ms
from spark_queue.settings.types import Purpose, QueueStreamOptions, TopicBatchOptions, TopicStreamOptions

QUEUE = {"path": "/j", "queue": "WORK", "subscription": "s"}
TOPIC = {"path": "/j", "topic": "ORDERS"}

REFUSALS: list[tuple[str, Purpose, dict[str, str], str]] = [
    ("UNKNOWN_OPTION", Purpose.QUEUE_STREAM, QUEUE | {"maxbacklock": "1"}, "Did you mean 'maxBacklog'?"),
    ("UNKNOWN_OPTION", Purpose.QUEUE_STREAM, QUEUE | {"publisher": "p"}, "It belongs to: batch write, stream write."),
    ("UNKNOWN_OPTION", Purpose.WRITE_STREAM, TOPIC | {"txnappid": "a"}, "It belongs to: batch write."),
    ("UNKNOWN_OPTION", Purpose.VIEW_BATCH, {"path": "/j", "queue": "Q", "subscribtion": "s"}, "for a read of a queue. Did you"),
    ("MISSING_OPTION", Purpose.QUEUE_STREAM, {"path": "/j", "queue": "WORK"}, "Option 'subscription' is missing"),
    ("MISSING_OPTION", Purpose.TOPIC_BATCH, {"topic": "ORDERS"}, "Option 'journal' is missing"),
    ("MISSING_OPTION", Purpose.WRITE_BATCH, TOPIC | {"txnappid": "a"}, "Option 'txnVersion' is missing"),
    ("MISSING_OPTION", Purpose.WRITE_BATCH, TOPIC | {"sequencecolumn": "n"}, "Option 'publisher' is missing"),
    ("MISSING_OPTION", Purpose.VIEW_BATCH, {"path": "/j", "view": "leases"}, "view 'leases' needs a queue"),
    ("BAD_VALUE", Purpose.QUEUE_STREAM, QUEUE | {"ackmode": "later"}, "one of auto, explicit"),
    ("BAD_VALUE", Purpose.QUEUE_STREAM, QUEUE | {"maxbacklog": "many"}, "a whole number from 0"),
    ("BAD_VALUE", Purpose.QUEUE_STREAM, QUEUE | {"maxbacklog": str(2**63)}, "of at most 63 bits"),
    ("BAD_VALUE", Purpose.QUEUE_STREAM, QUEUE | {"minpartitions": "0"}, "a whole number from 1"),
    ("BAD_VALUE", Purpose.QUEUE_STREAM, QUEUE | {"queue": "../x"}, "a name"),
    ("BAD_VALUE", Purpose.WRITE_BATCH, TOPIC | {"expiresafter": "60"}, "a duration with a unit"),
    ("BAD_VALUE", Purpose.TOPIC_BATCH, TOPIC | {"startingbookmark": "-5"}, "earliest, latest or a bookmark"),
    ("BAD_VALUE", Purpose.TOPIC_BATCH, TOPIC | {"startingbookmark": "9" * 5_000}, "a whole number from 0, of at most 63 bits"),
    ("BAD_VALUE", Purpose.TOPIC_BATCH, TOPIC | {"startingbookmark": str(2**63)}, "of at most 63 bits"),
    ("BAD_VALUE", Purpose.TOPIC_STREAM, TOPIC | {"startingtimestamp": "0001-01-01T00:00:00+14:00"}, "an ISO-8601 time with"),
    ("BAD_VALUE", Purpose.TOPIC_STREAM, TOPIC | {"startingtimestamp": "9999-12-31T23:59:59-12:00"}, "an ISO-8601 time with"),
    ("BAD_VALUE", Purpose.TOPIC_BATCH, {"journal": "/j", "topic": "T", "paths": '["/a","/b"]'}, "the path of one journal"),
    (
        "CONTRADICTORY_SETTINGS",
        Purpose.TOPIC_BATCH,
        TOPIC | {"startingbookmark": "8", "endingbookmark": "3"},
        "the read ends before it starts. Remove one of: startingBookmark, endingBookmark.",
    ),
    (
        "CONTRADICTORY_SETTINGS",
        Purpose.TOPIC_BATCH,
        TOPIC | {"startingtimestamp": "2026-02-01T00:00:00Z", "endingtimestamp": "2026-01-01T00:00:00Z"},
        "startingTimestamp, endingTimestamp",
    ),
    ("CONTRADICTORY_SETTINGS", Purpose.QUEUE_STREAM, QUEUE | {"journal": "/k"}, "path, journal"),
    (
        "CONTRADICTORY_SETTINGS",
        Purpose.TOPIC_BATCH,
        TOPIC | {"startingbookmark": "1", "startingtimestamp": "2026-01-01T00:00:00Z"},
        "startingBookmark, startingTimestamp",
    ),
]


def of_queue(options: dict[str, str]) -> QueueStreamOptions:
    read = read_options(options, Purpose.QUEUE_STREAM)
    assert isinstance(read, QueueStreamOptions)
    return read


def test_backlogs_have_defaults_that_suit_a_batch_engine() -> None:
    """R25, R26, R27: a subscription asks for its backlog by an option; neither it nor the queue's limit defaults to 1 here."""
    assert of_queue(QUEUE).max_backlog == 100_000
    assert of_queue(QUEUE | {"maxbacklog": "2"}).max_backlog == 2
    defined = load_definitions({"message_types": {"json": {"topics": ["T"]}}, "queues": {"T": {}}})
    assert defined.queue("T").max_per_subscription_backlog == 0


def test_queue_stream_options_are_read_from_lower_case() -> None:
    options = of_queue(QUEUE | {"maxbacklog": "7", "ackmode": "Explicit", "columns": "a, b"})
    assert (options.journal, options.queue, options.subscription) == ("/j", "WORK", "s")
    assert (options.max_backlog, options.ack_mode, options.columns) == (7, "explicit", ("a", "b"))


def test_defaults_differ_between_a_topic_stream_and_a_topic_batch() -> None:
    stream, batch = read_options(TOPIC, Purpose.TOPIC_STREAM), read_options(TOPIC, Purpose.TOPIC_BATCH)
    assert isinstance(stream, TopicStreamOptions)
    assert isinstance(batch, TopicBatchOptions)
    assert stream.starting == Position(kind="latest")
    assert (batch.starting, batch.ending) == (Position(kind="earliest"), Position(kind="latest"))


@pytest.mark.parametrize(("code", "purpose", "options", "text"), REFUSALS)
def test_options_are_refused_by_name_when_they_do_not_fit(code: str, purpose: Any, options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_options(options, purpose)
    assert refused.value.code == code
    assert text in str(refused.value)


def test_what_spark_adds_is_let_through_and_storage_options_are_collected() -> None:
    options = read_options(
        QUEUE | {"checkpointlocation": "/c", "option.x": "1", "provider": "sparkqueue", "storage.aws_region": "eu"},
        Purpose.QUEUE_STREAM,
    )
    assert options.storage == {"aws_region": "eu"}


def test_typed_options_survive_pickling_and_hide_storage_secrets() -> None:
    options = read_options(QUEUE | {"storage.aws_secret_access_key": "hush"}, Purpose.QUEUE_STREAM)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hush" not in repr(options)


def test_a_bare_timestamp_is_refused_showing_both_readings() -> None:
    with pytest.raises(CallerError, match=r"\[TIMESTAMP_AMBIGUOUS\]") as refused:
        read_options(TOPIC | {"startingtimestamp": "2026-01-31T12:00:00"}, Purpose.TOPIC_BATCH)
    assert refused.value.facts["utc"] == "2026-01-31T12:00:00+00:00"
    assert refused.value.facts["local"].startswith("2026-01-31T12:00:00")


def test_timestamps_become_utc_milliseconds_rounded_down() -> None:
    moment = parse_timestamp("2026-01-31T13:00:00.001999+01:00")
    assert moment == datetime(2026, 1, 31, 12, 0, 0, 1999, tzinfo=UTC)
    assert to_ms(moment) == 1_769_860_800_001
    assert to_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)) == -1


@pytest.mark.parametrize(
    ("options", "streaming", "purpose"),
    [
        (QUEUE, True, Purpose.QUEUE_STREAM),
        (QUEUE, False, Purpose.VIEW_BATCH),
        (TOPIC, True, Purpose.TOPIC_STREAM),
        (TOPIC, False, Purpose.TOPIC_BATCH),
        ({"view": "status"}, False, Purpose.VIEW_BATCH),
    ],
)
def test_the_purpose_of_a_read_follows_from_queue_and_topic(options: dict[str, str], *, streaming: bool, purpose: Purpose) -> None:
    assert read_purpose(options, streaming=streaming) is purpose


@pytest.mark.parametrize("options", [{"path": "/j"}, {"queue": "Q", "topic": "T"}, {"view": "status", "topic": "T"}])
def test_a_read_names_exactly_one_of_queue_and_topic(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        read_purpose(options, streaming=False)


def test_definitions_load_from_a_file_and_from_a_dict(tmp_path: Path) -> None:
    path = tmp_path / "queues.toml"
    path.write_text('[message_types.t]\ncolumns = "a BIGINT"\ntopics = ["T"]\n[queues.T]\nlease_period = "5s"\n')
    assert load_definitions(path).queue("T").lease_period_ms == 5_000
    stored = {"message_types": {"t": {"columns": "a BIGINT", "topics": ["T"]}}, "queues": {"T": {"lease_period": "5s"}}}
    assert load_definitions(stored) == load_definitions(str(path))


@pytest.mark.parametrize("content", [b"[journal", b"\xff\xfe", None])
def test_a_definition_file_that_cannot_be_read_is_refused_with_its_path(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "queues.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SparkQueueError) as refused:
        load_definitions(path)
    assert refused.value.code == "DEFINITIONS_UNREADABLE"
    assert str(path) in str(refused.value)


def test_the_tables_for_people_hold_every_key_and_option() -> None:
    assert {row.name for row in key_rows()} == {
        key.name for definition in (*TABLES.values(), Entitlement) for key in keys_of(definition)
    }
    names = [row.name for row in option_rows()]
    assert names[:2] == ["journal", "storage.*"]
    assert "maxBacklog" in names
    assert all(row.about.endswith(".") for row in (*key_rows(), *option_rows()))
