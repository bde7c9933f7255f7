"""Typed, JSON and binary messages through publish, stream and Spark's own types (DESIGN 4)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_queue import Journal
from tests.integration.source_journal import SourceJournal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

TYPED = (
    "flag BOOLEAN, tiny TINYINT, small SMALLINT, number INT, big BIGINT NOT NULL, single FLOAT, double DOUBLE, "
    "price DECIMAL(12,2), text STRING, body BINARY, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, "
    "tags ARRAY<STRING>, prices MAP<STRING, DOUBLE>, buyer STRUCT<name: STRING, address: STRUCT<zip: STRING, lines: ARRAY<STRING>>>"
)
ROW = {
    "flag": True,
    "tiny": -1,
    "small": 300,
    "number": 70_000,
    "big": 2**40,
    "single": 0.5,
    "double": 0.1,
    "price": Decimal("1234567890.12"),
    "text": "Zürich 🍒",
    "body": b"\x00\xff",
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
    "wall": datetime.fromisoformat("2026-01-31T12:00:00.000001"),
    "tags": ["a", None],
    "prices": {"x": 1.5},
    "buyer": {"name": "Ada", "address": {"zip": "8000", "lines": ["one", "two"]}},
}


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Iterator[SourceJournal]:
    definitions = {
        "message_types": {
            "typed": {"columns": TYPED, "topics": ["TYPED"]},
            "json": {"topics": ["EVENTS"]},
            "binary": {"topics": ["BLOBS"]},
        },
        "queues": {"TYPED": {}, "EVENTS": {}, "BLOBS": {}},
    }
    made = SourceJournal(Journal.create(str(tmp_path / "journal"), definitions), tmp_path / "home", spark)
    yield made
    made.close()


def received(home: SourceJournal, queue: str) -> tuple[Any, list[dict[str, Any]]]:
    """Consume a queue; returns the stream's schema and the rows."""
    rows: list[dict[str, Any]] = []
    stream = home.stream(queue=queue)

    def note(batch: DataFrame, batch_id: int) -> None:
        rows.extend(row.asDict(recursive=True) for row in batch.collect())

    wrapped = home.journal.queue(queue).foreach_batch(note, subscription="s")
    writer = stream.writeStream.foreachBatch(wrapped).option("checkpointLocation", home.checkpoint(queue))
    writer.trigger(availableNow=True).start().awaitTermination()
    return stream.schema, rows


def test_every_type_of_column_comes_back_as_it_was_published(home: SourceJournal) -> None:
    from pyspark.sql.types import StructType

    home.journal.publish([ROW, {"big": 1}], topic="TYPED")
    schema, rows = received(home, "TYPED")
    assert schema[: len(ROW)] == StructType.fromDDL(TYPED)
    # Spark's rows hold instants as local times, here of UTC.
    sent = {**ROW, "at": datetime.fromisoformat("2026-01-31T12:00:00.123456")}
    assert {name: rows[0][name] for name in ROW} == sent
    assert {name: rows[1][name] for name in ROW} == {**dict.fromkeys(ROW), "big": 1}


def test_json_and_binary_messages_come_back_byte_for_byte(home: SourceJournal) -> None:
    home.journal.publish([{"value": '{"a": 1}'}], topic="EVENTS")
    home.journal.publish([{"value": b"\x00\x01"}, {"value": b""}], topic="BLOBS")
    assert [row["value"] for row in received(home, "EVENTS")[1]] == ['{"a": 1}']
    assert [bytes(row["value"]) for row in received(home, "BLOBS")[1]] == [b"\x00\x01", b""]


def test_spark_reads_and_writes_the_same_types(home: SourceJournal) -> None:
    """What a stream read can be published again by Spark, without a loss."""
    home.journal.publish([ROW], topic="TYPED")
    frame = home.spark.read.format("sparkqueue").option("topic", "TYPED").load(home.journal.path).select(*ROW)
    frame.write.format("sparkqueue").mode("append").option("topic", "TYPED").save(home.journal.path)
    first, second = home.spark.read.format("sparkqueue").option("topic", "TYPED").load(home.journal.path).select(*ROW).collect()
    assert first == second


def test_appended_columns_are_null_for_old_messages_and_running_queries_keep_theirs(home: SourceJournal) -> None:
    home.journal.publish([{"value": "{}"}], topic="EVENTS")
    definitions = {
        "message_types": {
            "typed": {"columns": f"{TYPED}, added STRING", "topics": ["TYPED"]},
            "json": {"topics": ["EVENTS"]},
            "binary": {"topics": ["BLOBS"]},
        },
        "queues": {"TYPED": {}, "EVENTS": {}, "BLOBS": {}},
    }
    home.journal.publish([ROW], topic="TYPED")
    before = home.stream(queue="TYPED")
    home.journal.apply(definitions)
    home.journal.publish([{**ROW, "added": "new"}], topic="TYPED")
    assert "added" not in before.columns
    _, rows = received(home, "TYPED")
    assert [row["added"] for row in rows] == [None, "new"]
