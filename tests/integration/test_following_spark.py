"""A queue over a Delta table that Spark writes, consumed by a stream: what Spark's own writer puts into log and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from spark_queue import Journal, Queue
from spark_queue.source.spark_versions import TELLS_COMMITTED
from tests.integration.coordinator_world import DEADLINE_S
from tests.integration.source_journal import end_coordinator
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.delta


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

    def definitions(self, **keys: str) -> dict[str, Any]:
        return {
            "message_types": {"orders": {"table": self.path, **keys}},
            # What a stream had that failed is soon there again.
            "queues": {name: {"underlying_topic": "orders", "lease_period": "10s"} for name in ("SHIP", "PLAIN", "LATE")},
        }

    def follow(self, **keys: str) -> None:
        self.journal = Journal.create(str(self.home / "journal"), self.definitions(**keys))

    @property
    def queue(self) -> Queue:
        return self.journal.queue("SHIP")

    def run(self, *columns: str) -> list[tuple[object, ...]]:
        """Consume by a stream what is there, and return it."""
        self.found.clear()
        stream = self.spark.readStream.format("sparkqueue").option("queue", "SHIP").option("subscription", "s")
        fn = self.queue.foreach_batch(
            lambda batch, _: self.found.extend(tuple(row) for row in batch.selectExpr(*columns).collect()), subscription="s"
        )
        writer = stream.load(self.journal.path).writeStream.foreachBatch(fn).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.home / "checkpoint")).start().awaitTermination()
        return sorted(self.found)

    def run_plainly(self) -> None:
        """Consume what is there by a stream whose sink tells nobody how its batches end."""
        stream = self.spark.readStream.format("sparkqueue").option("queue", "SHIP").option("subscription", "plain")
        writer = stream.load(self.journal.path).writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.home / "plain")).start().awaitTermination()

    def receive(self, queue: str) -> list[Mapping[str, Any]]:
        """Take what is there without Spark."""
        values = []
        with self.journal.queue(queue).receive(until_empty=True) as messages:
            for message in messages:
                values.append(message.value())
                message.acknowledge().result(DEADLINE_S)
        return values


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


def test_a_field_that_a_struct_gains_has_a_way_on_and_disturbs_no_values(orders: SparkTable) -> None:
    """R147, R148, R150: what is read is what is declared, wherever the field stands, for a stream and for a receiver."""
    columns = "id BIGINT, s STRUCT<a: INT, b: INT>, l ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<a: INT, b: INT>>"
    orders.create(columns)
    orders.follow(relocate_after="0s")
    orders.sql("INSERT INTO orders VALUES (1, struct(1, 2), array(struct(3, 4)), map('k', struct(5, 6)))")
    read = ("id", "CAST(s AS STRING)", "CAST(l AS STRING)", "CAST(m AS STRING)")
    assert orders.run(*read) == [(1, "{1, 2}", "[{3, 4}]", "{k -> {5, 6}}")]
    orders.sql("ALTER TABLE orders ADD COLUMNS (s.z INT FIRST, l.element.z INT AFTER a, m.value.z INT)")
    orders.sql("INSERT INTO orders VALUES (2, struct(9, 1, 2), array(struct(3, 9, 4)), map('k', struct(5, 6, 9)))")
    with pytest.raises(Exception, match="TABLE_CHANGED"):
        orders.run(*read)
    orders.journal.follow("orders", version=3)
    orders.sql("INSERT INTO orders VALUES (3, struct(9, 10, 20), array(struct(30, 9, 40)), map('k', struct(50, 60, 9)))")
    assert orders.run(*read) == [
        (2, "{1, 2}", "[{3, 4}]", "{k -> {5, 6}}"), (3, "{10, 20}", "[{30, 40}]", "{k -> {50, 60}}"),
    ]  # fmt: skip
    received = [
        {"id": 1, "s": {"a": 1, "b": 2}, "l": [{"a": 3, "b": 4}], "m": [("k", {"a": 5, "b": 6})]},
        {"id": 2, "s": {"a": 1, "b": 2}, "l": [{"a": 3, "b": 4}], "m": [("k", {"a": 5, "b": 6})]},
        {"id": 3, "s": {"a": 10, "b": 20}, "l": [{"a": 30, "b": 40}], "m": [("k", {"a": 50, "b": 60})]},
    ]
    assert orders.receive("PLAIN") == received
    # A copy has what was declared when it was made; a field that is declared since is NULL there.
    orders.sql("OPTIMIZE orders")
    assert orders.journal.catch_up().files == 0
    orders.journal.apply(orders.definitions(relocate_after="0s"))
    assert [(each["s"], each["l"][0]["z"], each["m"][0][1]["z"]) for each in orders.receive("LATE")] == [
        ({"a": 1, "z": None, "b": 2}, None, None), ({"a": 1, "z": None, "b": 2}, None, None),
        ({"a": 10, "z": None, "b": 20}, None, None),
    ]  # fmt: skip


def test_a_table_with_vectors_is_followed_from_its_beginning(orders: SparkTable) -> None:
    """R156: rows that were deleted before are no messages."""
    orders.create("id BIGINT, item STRING", **{"delta.enableDeletionVectors": "true"})
    orders.sql("INSERT INTO orders SELECT /*+ COALESCE(1) */ id, 'a' FROM range(0, 5)")
    orders.sql("DELETE FROM orders WHERE id IN (1, 4)")
    orders.follow(**{"from": "beginning"})
    orders.sql("INSERT INTO orders VALUES (7, 'b')")
    assert orders.run("id") == [(0,), (2,), (3,), (7,)]


@pytest.mark.parametrize("consume_plainly", [False, True], ids=["a batch function", "a sink of Spark"])
def test_a_file_that_a_stream_does_not_find_is_looked_for_soon(orders: SparkTable, *, consume_plainly: bool) -> None:
    """R155: whoever finds out that it is gone, which nobody has to say; its next start goes on without the messages in it."""
    orders.create("id BIGINT")
    orders.follow()
    for number in range(2):
        orders.sql(f"INSERT INTO orders VALUES ({number})")
    assert orders.journal.catch_up().files == 0
    first, second = (str(orders.queue.explain(bookmark).file) for bookmark in range(2))
    orders.sql("OPTIMIZE orders")
    Path(orders.path, first).unlink()
    orders.sql("INSERT INTO orders VALUES (2)")
    assert orders.journal.catch_up().files == 0
    # The next look by itself is minutes away from here.
    wait_until(lambda: orders.queue.status().dead_letters == 1)
    Path(orders.path, second).unlink()
    consume = orders.run_plainly if consume_plainly else lambda: orders.run("id")
    with pytest.raises(StreamingQueryException, match="MESSAGE_FILE_MISSING"):
        consume()
    wait_until(lambda: orders.queue.status().dead_letters == 2)
    # Earlier versions tell only the next run what was committed.
    for _ in range(1 if TELLS_COMMITTED else 2):
        consume()
    assert orders.queue.status().acknowledged == 1


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
