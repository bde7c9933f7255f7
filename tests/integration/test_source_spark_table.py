"""Tables that Spark itself writes as sinks: features that delta-rs does not keep, and MERGE, on real Spark (DESIGN 19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it.

from spark_queue.errors import SparkQueueError
from spark_queue.sinks.sink import Fate, Landing, transaction_id
from spark_queue.sinks.table import SinkTable
from spark_queue.source import spark_table
from spark_queue.source.spark_table import SparkTable
from tests.integration.source_journal import MakeHome
from tests.integration.test_source_into import PER_BATCH, Harm, booked, into, run, sink

pytestmark = pytest.mark.delta

#: Tables that only Spark writes: their columns, and what stands behind them.
FEATURES = {
    "generated": ("id BIGINT, item STRING, twice BIGINT GENERATED ALWAYS AS (id * 2)", ""),
    "identity": ("number BIGINT GENERATED ALWAYS AS IDENTITY, id BIGINT, item STRING", ""),
    "constraint": ("id BIGINT, item STRING", "TBLPROPERTIES ('delta.constraints.positive' = 'id >= 0')"),
    "column mapping": ("id BIGINT, item STRING", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"),
    "row tracking": ("id BIGINT, item STRING", "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"),
    "in-commit timestamps": ("id BIGINT, item STRING", "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"),
    "clustering": ("id BIGINT NOT NULL, item STRING", "CLUSTER BY (id)"),
}  # fmt: skip


@pytest.fixture
def one_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark's Delta write to a local disk: these tests have one driver, in which its commits exclude each other."""
    monkeypatch.setattr(spark_table, "_UNSAFE_SCHEMES", frozenset())


@pytest.mark.drawn(1)
@pytest.mark.usefixtures("one_driver")
@pytest.mark.parametrize("feature", FEATURES)
def test_a_table_that_only_spark_writes_takes_batches_and_fences(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    """R124: Spark skips in silence what is below the version that stands there, so the table is read after its commit."""
    columns, more = FEATURES[feature]
    path = str(tmp_path / "booked")
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {more}")
    with pytest.raises(SparkQueueError, match="SINK_FEATURE_UNSUPPORTED"):
        SinkTable(path, {}).check()
    table = SparkTable(path, {})
    transaction = transaction_id("j", "Q", "s")
    rows = spark.createDataFrame([(1, "one")], "id BIGINT, item STRING")
    plan = table.plan(rows.schema.jsonValue()["fields"])

    def append(attempt: int) -> Landing:
        return table.append(plan, table.stage(rows, plan, spark, messages=1), transaction=transaction, attempt=attempt)

    assert table.fence(transaction=transaction, attempt=1) == Landing(Fate.FENCED, None)
    assert append(1).fate is Fate.FENCED
    assert append(2) == Landing(Fate.LANDED, 2)
    assert table.fence(transaction=transaction, attempt=2).fate is Fate.LANDED
    assert_df_equality(spark.read.format("delta").load(path).select("id", "item"), rows, ignore_nullable=True)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("point", ["prepared", "committed"])
def test_batches_are_merged_once_each_wherever_the_consumer_dies(
    make_home: MakeHome, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The MERGE adds to what stands there, so a batch that came twice would show; on a laptop's disk, where one driver commits."""
    home = make_home()
    home.spark.sql(f"CREATE TABLE delta.`{sink(home)}` (third BIGINT, total BIGINT) USING delta")
    home.publish(0, 8)

    def summed(batch: Any, _: int) -> Any:
        return batch.groupBy((F.col("id") % 3).alias("third")).agg(F.sum("id").alias("total"))

    def merge(table: Any, rows: Any) -> Any:
        merging = table.alias("t").merge(rows.alias("s"), "t.third = s.third")
        return merging.whenMatchedUpdate(set={"total": "t.total + s.total"}).whenNotMatchedInsertAll()

    given: dict[str, Any] = {"options": {"maxBacklog": PER_BATCH}, "writer": "spark", "merge": merge, "single_driver": True}
    Harm(monkeypatch, point, SparkTable)
    with pytest.raises(StreamingQueryException, match="the consumer died"):
        run(home, summed, **given)
    (doubted,) = home.journal.queue("WORK").attempts_in_doubt()
    assert (doubted.table, doubted.attempt) == (sink(home), 1)
    run(home, summed, **given)
    found = home.spark.read.format("delta").load(sink(home)).collect()
    assert sorted((row["third"], row["total"]) for row in found) == [(third, sum(range(third, 8, 3))) for third in range(3)]
    assert home.figures() == (0, 0, 8)
    states = [row["state"] for row in home.journal.view("sink_commits", queue="WORK").to_pylist()]
    assert states == ["landed", "landed", *(["fenced"] if point == "prepared" else [])]


@pytest.mark.usefixtures("one_driver")
def test_an_error_of_the_rows_fences_the_attempt_at_once(make_home: MakeHome) -> None:
    """Spark runs fn's plan as it writes: what that raises reaches the user as it is, and nothing is left in doubt."""
    home = make_home()
    columns, more = FEATURES["constraint"]
    home.spark.sql(f"CREATE TABLE delta.`{sink(home)}` ({columns}) USING delta {more}")
    home.publish(0, 4)
    with pytest.raises(StreamingQueryException, match="CHECK constraint positive"):
        run(home, lambda batch, _: batch.selectExpr("id - 2 AS id", "item"), writer="spark")
    assert home.journal.queue("WORK").attempts_in_doubt() == ()
    assert [row["state"] for row in home.journal.view("sink_commits", queue="WORK").to_pylist()] == ["fenced"]
    run(home, booked, writer="spark")
    found = home.spark.read.format("delta").load(sink(home)).collect()
    assert sorted((row["id"], row["item"]) for row in found) == [(number, f"item {number}") for number in range(4)]


@pytest.mark.usefixtures("one_driver")
def test_a_new_table_and_new_columns(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 2)
    run(home, lambda batch, _: batch.select("id"), writer="spark")
    home.publish(2, 2)
    with pytest.raises(StreamingQueryException, match="SINK_SCHEMA_DIFFERS.*it has no column 'item'"):
        run(home, booked, writer="spark")
    run(home, booked, writer="spark", merge_schema=True)
    found = home.spark.read.format("delta").load(sink(home)).collect()
    assert sorted((row["id"], row["item"]) for row in found) == [(0, None), (1, None), (2, "item 2"), (3, "item 3")]


def test_stores_where_two_drivers_could_both_commit_are_refused(make_home: MakeHome) -> None:
    home = make_home()
    with pytest.raises(SparkQueueError, match=r"SINK_COMMIT_UNSAFE.*set single_driver=True"):
        into(home, writer="spark")
    with pytest.raises(SparkQueueError, match=r"BAD_VALUE.*single_driver"):
        into(home, single_driver=True)
    options = {
        "aws_access_key_id": "k",
        "aws_secret_access_key": "s",
        "aws_endpoint": "http://127.0.0.1:9",
        "aws_allow_http": "true",
    }
    home.spark.conf.set("spark.delta.logStore.s3.impl", "io.delta.storage.S3SingleDriverLogStore")
    try:
        with pytest.raises(SparkQueueError, match=r"SINK_COMMIT_UNSAFE.*spark\.delta\.logStore\.s3\.impl"):
            into(home, path="s3://bucket/booked", storage_options=options, writer="spark")
    finally:
        home.spark.conf.unset("spark.delta.logStore.s3.impl")


@pytest.mark.parametrize(
    "given",
    [
        {"table": "/tmp/t", "writer": "hive"}, {"table": "/tmp/t", "merge": print}, {"topic": "B", "writer": "spark"},
        {"table": "/tmp/t", "merge": print, "writer": "spark", "partition_by": ["id"]},
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(make_home: MakeHome, given: dict[str, Any]) -> None:
    home = make_home()
    with pytest.raises(SparkQueueError, match="BAD_VALUE"):
        home.journal.queue("WORK").into(subscription="s", **given)
