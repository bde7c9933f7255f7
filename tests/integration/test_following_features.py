"""Tables with features that Spark's Delta has: each message is the row as Spark itself reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_queue import Journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAPPED = "'delta.columnMapping.mode' = 'name'"
_WIDENS = "'delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported'"

#: What is done to each table before it is followed, and what is after that: only appends, and commits that bring no rows.
_TABLES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "a column that was dropped and is there again": (
        (
            f"CREATE TABLE t (id BIGINT, v STRING) USING delta TBLPROPERTIES ({_MAPPED})",
            "INSERT INTO t VALUES (1, 'old')",
            "ALTER TABLE t DROP COLUMN v",
            "ALTER TABLE t ADD COLUMN v STRING",
            "INSERT INTO t VALUES (2, 'new')",
        ),
        ("INSERT INTO t VALUES (3, 'newer')",),
    ),
    "columns that were widened": (
        (
            f"CREATE TABLE t (b TINYINT, i INT, f FLOAT, d DECIMAL(5,2), dt DATE, ar ARRAY<SMALLINT>) USING delta "
            f"TBLPROPERTIES ({_WIDENS})",
            "INSERT INTO t VALUES (1, 2, 1.5, 123.45, DATE'1500-02-03', array(1, 2)), (-1, NULL, 0, -0.01, DATE'9999-12-31', NULL)",
            "ALTER TABLE t CHANGE COLUMN b TYPE INT",
            "ALTER TABLE t CHANGE COLUMN i TYPE BIGINT",
            "ALTER TABLE t CHANGE COLUMN f TYPE DOUBLE",
            "ALTER TABLE t CHANGE COLUMN d TYPE DECIMAL(12,4)",
            "ALTER TABLE t CHANGE COLUMN dt TYPE TIMESTAMP_NTZ",
            "ALTER TABLE t CHANGE COLUMN ar.element TYPE INT",
        ),
        ("INSERT INTO t VALUES (70000, 5000000000, 1.1, 12345678.1234, TIMESTAMP_NTZ'2026-01-01 01:02:03.000004', array(70000))",),
    ),
    "clustering": (
        ("CREATE TABLE t (id BIGINT, c STRING) USING delta CLUSTER BY (c)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')"),
        (
            "INSERT INTO t VALUES (3, 'c')",
            "OPTIMIZE t FULL",
            "ALTER TABLE t CLUSTER BY (id)",
            "INSERT INTO t VALUES (4, 'd')",
            "OPTIMIZE t",
        ),
    ),
    "vectors that are purged": (
        (
            "CREATE TABLE t (id BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
            "INSERT INTO t SELECT /*+ COALESCE(1) */ id FROM range(10)",
            "DELETE FROM t WHERE id % 3 = 0",
        ),
        ("REORG TABLE t APPLY (PURGE)", "INSERT INTO t VALUES (20)"),
    ),
    "partitions by times without a zone": (
        (
            "CREATE TABLE t (id BIGINT, p TIMESTAMP_NTZ) USING delta PARTITIONED BY (p)",
            "INSERT INTO t VALUES (1, TIMESTAMP_NTZ'2026-01-02 03:04:05.12'), (2, NULL), (3, TIMESTAMP_NTZ'0001-01-01 00:00:00')",
        ),
        ("INSERT INTO t VALUES (4, TIMESTAMP_NTZ'9999-12-31 23:59:59')",),
    ),
}


@pytest.mark.parametrize("table", _TABLES)
def test_messages_are_the_rows_as_spark_reads_them(spark: SparkSession, tmp_path: Path, table: str) -> None:
    """R144, R145, R150, R156: whatever was done to the table before it is followed, and to its files later."""
    path = str(tmp_path / "orders")

    def do(statements: Sequence[str]) -> None:
        for statement in statements:
            spark.sql(" ".join(f"delta.`{path}`" if word == "t" else word for word in statement.split(" ")))

    before, after = _TABLES[table]
    do(before)
    types = {"orders": {"table": path, "from": "beginning", "on_change": "keep"}}
    journal = Journal.create(
        str(tmp_path / "journal"), {"message_types": types, "queues": {"SHIP": {"underlying_topic": "orders"}}}
    )
    do(after)
    there = spark.sql(f"SELECT * FROM delta.`{path}`")
    read: list[tuple[Any, ...]] = [tuple(row) for row in there.collect()]
    found = [tuple(row[name] for name in there.columns) for row in journal.view("messages", queue="SHIP").to_pylist()]
    assert sorted(found, key=repr) == sorted(read, key=repr)
    assert len(found) > 1
    assert journal.queue("SHIP").status().alarm is None
