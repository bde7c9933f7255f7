"""A queue over a Delta table that Spark writes, consumed by a stream: what Spark's own writer puts into log and files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from tests.integration.source_journal import end_coordinator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkTable:
    """A table that Spark writes, and a stream over its queue into a list."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark = spark
        self.home = home
        self.path = str(home / "orders")
        self.found: list[tuple[object, ...]] = []

    def create(self, columns: str, *, partitioned: str = "", **properties: str) -> None:
        keys = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        of_properties = f"TBLPROPERTIES ({keys})" if keys else ""
        self.sql(f"CREATE TABLE delta.`{self.path}` ({columns}) USING delta {partitioned} {of_properties}")

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.replace("orders", f"delta.`{self.path}`") if "delta.`" not in statement else statement)

    def follow(self, **keys: str) -> None:
        definitions = {
            "message_types": {"orders": {"table": self.path, **keys}},
            "queues": {"SHIP": {"underlying_topic": "orders"}},
        }
        self.journal = Journal.create(str(self.home / "journal"), definitions)

    def run(self, *columns: str) -> list[tuple[object, ...]]:
        """Consume by a stream what is there, and return it."""
        self.found.clear()
        stream = self.spark.readStream.format("sparkqueue").option("queue", "SHIP").option("subscription", "s")
        fn = self.journal.queue("SHIP").foreach_batch(
            lambda batch, _: self.found.extend(tuple(row) for row in batch.selectExpr(*columns).collect()), subscription="s"
        )
        writer = stream.load(self.journal.path).writeStream.foreachBatch(fn).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.home / "checkpoint")).start().awaitTermination()
        return sorted(self.found)


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Iterator[SparkTable]:
    """Give a table that is not there yet, whose journal's coordinator ends with the test."""
    made = SparkTable(spark, tmp_path)
    yield made
    end_coordinator(made.journal)


def test_a_stream_gets_what_spark_appends_and_a_compaction_passes(orders: SparkTable) -> None:
    orders.create("id BIGINT, country STRING, at TIMESTAMP", partitioned="PARTITIONED BY (country)")
    orders.sql("INSERT INTO orders VALUES (0, 'NL', TIMESTAMP '2026-01-01 00:00:00Z')")
    orders.follow()
    orders.sql("INSERT INTO orders VALUES (1, 'NL', TIMESTAMP '1500-01-01 00:00:00Z'), (2, 'D E', NULL)")
    orders.sql("INSERT INTO orders VALUES (3, NULL, NULL)")
    assert orders.run("id", "country", "CAST(at AS BIGINT)", "topic") == [
        (1, "NL", -14831769600, "orders"),
        (2, "D E", None, "orders"),
        (3, None, None, "orders"),
    ]
    orders.sql("OPTIMIZE orders")
    orders.sql("INSERT INTO orders VALUES (4, 'NL', NULL)")
    assert orders.run("id") == [(4,)]


def test_mapped_columns_and_vectors_are_followed(orders: SparkTable) -> None:
    properties = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    orders.create("id BIGINT, item STRING, note STRING", **properties)
    orders.follow(on_change="keep", columns="id BIGINT, item STRING")
    orders.sql("INSERT INTO orders VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    orders.sql("ALTER TABLE orders RENAME COLUMN item TO label")
    orders.sql("ALTER TABLE orders DROP COLUMN note")
    orders.sql("DELETE FROM orders WHERE id = 1")
    orders.sql("INSERT INTO orders VALUES (3, 'c')")
    assert orders.run("id", "item") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_table_with_vectors_is_followed_from_its_beginning(orders: SparkTable) -> None:
    """R156: rows that were deleted before are no messages."""
    orders.create("id BIGINT, item STRING", **{"delta.enableDeletionVectors": "true"})
    orders.sql("INSERT INTO orders SELECT /*+ COALESCE(1) */ id, 'a' FROM range(0, 5)")
    orders.sql("DELETE FROM orders WHERE id IN (1, 4)")
    orders.follow(**{"from": "beginning"})
    orders.sql("INSERT INTO orders VALUES (7, 'b')")
    assert orders.run("id") == [(0,), (2,), (3,), (7,)]


def test_a_stream_reads_from_copies_what_vacuum_took(orders: SparkTable) -> None:
    """R152: partition columns and types that Spark's files have otherwise."""
    orders.create("id BIGINT, country STRING, at TIMESTAMP, tags ARRAY<STRING>", partitioned="PARTITIONED BY (country)")
    orders.follow(relocate_after="0s")
    orders.sql("INSERT INTO orders VALUES (1, 'NL', TIMESTAMP '1500-01-01 00:00:00Z', array('x')), (2, '', NULL, NULL)")
    orders.sql("INSERT INTO orders VALUES (3, 'NL', NULL, array())")
    expected = [(1, "NL", -14831769600, ["x"]), (2, None, None, None), (3, "NL", None, [])]
    orders.sql("OPTIMIZE orders")
    assert orders.journal.catch_up().files == 0
    DeltaTable(orders.path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert orders.run("id", "country", "CAST(at AS BIGINT)", "tags") == expected
