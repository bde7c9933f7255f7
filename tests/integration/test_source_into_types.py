"""Rows of every type in a sink's table, as delta-rs and Spark read them, also by its statistics and partitions (DESIGN 19)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from spark_queue.sinks.sink import SMALL_BYTES, SMALL_MESSAGES, Fate
from spark_queue.sinks.table import SinkTable
from spark_queue.source.into import _without

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

at = datetime.fromisoformat

#: A type, values of it in ascending order, and whether a table may be partitioned by it.
TYPES: list[tuple[str, list[Any], bool]] = [
    ("BOOLEAN", [False, True], True),
    ("TINYINT", [-128, 127], True),
    ("SMALLINT", [-32_768, 32_767], True),
    ("INT", [-(2**31), 2**31 - 1], True),
    ("BIGINT", [-(2**63), 2**53 + 1, 2**63 - 1], True),
    ("FLOAT", [-1.5, 0.25, float("nan")], False),
    ("DOUBLE", [-1e300, 0.1, float("inf")], False),
    ("DECIMAL(38,10)", [Decimal("-12345678901234567890.0123456789"), Decimal("0E-10"), Decimal("1.1")], True),
    ("DATE", [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)], True),
    ("TIMESTAMP", [at("1969-12-31T23:59:59.999999"), at("2024-05-01T12:00:00.000001")], True),
    ("TIMESTAMP_NTZ", [at("1900-01-01T00:00:00"), at("2024-05-01T12:00:00.000001")], True),
    ("STRING", ["a" * 40 + "z", "a/b=c %20 ü", "x\U0010ffff" * 20, "\U0001f600" * 40], True),
    ("BINARY", [b"\x00", b"\xff\x00"], False),
    ("ARRAY<INT>", [[1, None], []], False),
    ("MAP<STRING, DOUBLE>", [{"a": 1.0, "b": None}], False),
    ("STRUCT<x: INT, y: STRUCT<z: STRING>>", [{"x": 1, "y": {"z": "deep"}}, {"x": None, "y": None}], False),
]


def append(
    spark: SparkSession, path: Path, rows: DataFrame, partition_by: list[str] | None = None, *, gathers: bool = False
) -> None:
    """Append by tasks, or from the driver, as a small batch that is not the first."""
    sink = SinkTable(str(path), {})
    if gathers:
        sink._bytes_each = 0
    fields: list[dict[str, Any]] = rows.schema.jsonValue()["fields"]
    plan = sink.plan(fields, partition_by=partition_by)
    files = sink.stage(rows, plan, spark, messages=1)
    landing = sink.append(plan, files, transaction="t", attempt=sink.transaction_version("t") // 2 + 1)
    assert landing.fate is Fate.LANDED


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("gathers", "partition_by", "is_read_by_rust"),
    [
        (False, [], True),
        (True, [], True),
        (True, [kind for kind, _, divides in TYPES if divides and not kind.startswith("DECIMAL")], True),
        # The reader of deltalake takes no negative decimal as a partition value, not even of its own writing.
        (True, ["DECIMAL(38,10)"], False),
    ],
    ids=["tasks", "driver", "partitions", "partitions by decimal"],
)
@pytest.mark.delta
def test_values_stand_there_as_they_were(
    spark: SparkSession, tmp_path: Path, *, gathers: bool, partition_by: list[str], is_read_by_rust: bool
) -> None:
    """A column of each type, named by it and by what a name may have; the last row has no values."""
    count = max(len(values) for _, values, _ in TYPES) + 1
    given = [(number, *(values[number] if number < len(values) else None for _, values, _ in TYPES)) for number in range(count)]
    rows = spark.createDataFrame(given, ", ".join(["n INT", *(f"`ü a.b {kind}` {kind}" for kind, _, _ in TYPES)]))
    append(spark, tmp_path / "t", rows, [f"ü a.b {kind}" for kind in partition_by], gathers=gathers)
    by_spark = spark.read.format("delta").load(str(tmp_path / "t"))
    assert str(by_spark.orderBy("n").collect()) == str(rows.orderBy("n").collect())
    # Neither statistics nor partition values may keep a row from who looks for it by any of its values.
    rows.createOrReplaceTempView("given")
    compared = [f"`ü a.b {kind}`" for kind, _, divides in TYPES if divides]
    for number in range(count):
        same = " AND ".join(f"{name} <=> (SELECT {name} FROM given WHERE n = {number})" for name in compared)
        assert [row["n"] for row in by_spark.where(same).collect()] == [number]
    if is_read_by_rust:
        arrow = rows.toArrow().sort_by("n")
        by_rust = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().select(arrow.column_names).sort_by("n")
        assert str(by_rust.cast(arrow.schema).to_pylist()) == str(arrow.to_pylist())


def test_small_batches_are_gathered_once_one_has_shown_how_small(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = SinkTable(str(tmp_path / "t"), {})
    rows = spark.range(10)
    plan = sink.plan(rows.schema.jsonValue()["fields"])
    by_tasks, write = [], SinkTable._by_tasks

    def counted(*given: Any) -> list[str]:
        by_tasks.append(1)
        return write(*given)

    monkeypatch.setattr(SinkTable, "_by_tasks", counted)

    def stage(messages: int) -> int:
        """Return for how many batches tasks have written, with this one."""
        assert sum(file.row_count for file in sink.stage(rows, plan, spark, messages=messages)) == 10
        return len(by_tasks)

    assert [stage(10), stage(10), stage(SMALL_MESSAGES + 1), stage(10)] == [1, 1, 2, 2]
    sink._bytes_each = SMALL_BYTES / 10 + 1
    assert stage(10) == 3, "the last batch was large"
    monkeypatch.setattr(type(rows), "toArrow", lambda _: 1 / 0)
    assert stage(10) == 4, "what the driver cannot gather is written by tasks"


def test_any_number_of_messages_is_left_out_of_a_batch(spark: SparkSession) -> None:
    batch = spark.range(20_000).selectExpr("'x' AS body", "id AS bookmark", "id % 7 AS n")
    left_out = [(number, number) for number in range(1, 10_000, 2)] + [(10_000, 19_997)]
    rows = _without(batch, left_out)
    assert rows.columns == batch.columns
    assert sorted(row["bookmark"] for row in rows.collect()) == [*range(0, 10_000, 2), 19_998, 19_999]


@pytest.mark.delta
def test_statistics_let_readers_pass_over_files(spark: SparkSession, tmp_path: Path) -> None:
    """One file for each task: what cannot be in a file is not looked for there."""
    instants, texts = "timestamp_micros(1714564800000001 + id * 1000) AS at", "concat(repeat('x', 40), lpad(id, 3, '0')) AS text"
    rows = spark.range(0, 100, 1, 4).selectExpr("id", instants, texts, "CAST(id AS DECIMAL(20, 3)) AS price")
    append(spark, tmp_path / "t", rows)
    table = spark.read.format("delta").load(str(tmp_path / "t"))
    for where in ("id = 77", "at = timestamp_micros(1714564800077001)", "price = 77", f"text = '{'x' * 40}077'"):
        assert [row["id"] for row in table.where(where).collect()] == [77], where
    adds = DeltaTable(str(tmp_path / "t")).get_add_actions(flatten=True)
    found: Any = (
        adds.to_pydict() if hasattr(adds, "to_pydict") else {name: adds.column(name).to_pylist() for name in adds.schema.names}
    )
    assert sorted(found["min.id"]) == [0, 25, 50, 75]
    assert found["null_count.id"] == [0] * 4
    assert max(found["max.price"]) == Decimal("99.000")


@pytest.mark.delta
def test_instants_come_in_whatever_time_zone_the_session_has(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        rows = spark.sql("SELECT TIMESTAMP '2024-05-01 05:30:00' AS at, 1 AS n")
        append(spark, tmp_path / "t", rows, ["at"])
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().column("at").to_pylist() == [datetime(2024, 5, 1, tzinfo=UTC)]
    (row,) = spark.read.format("delta").load(str(tmp_path / "t")).selectExpr("unix_micros(at) AS us").collect()
    assert row["us"] == 1_714_521_600_000_000


@pytest.mark.delta
def test_a_row_without_a_value_that_must_be_there_fails_its_batch_by_name(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` (id BIGINT NOT NULL) USING delta")
    with pytest.raises(Exception, match=r"SINK_SCHEMA_DIFFERS.*column 'id' is NULL in a row"):
        append(spark, tmp_path / "t", spark.sql("SELECT CAST(NULL AS BIGINT) AS id"))
