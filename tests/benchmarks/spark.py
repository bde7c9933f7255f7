"""The Spark session of the benchmarks, and the two sources that are compared on it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_queue import Journal, configure_spark
from tests.source_tree import ROOT

#: What runs on every micro-batch.
BatchFunction = Callable[[DataFrame, int], None]


@contextmanager
def session(place: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """Run Spark on two cores, as the budgets are meant, and with more settings, until the end of the block."""
    builder = SparkSession.Builder().master("local[2]").appName("spark_queue benchmarks")
    spark = (
        configure_spark(builder)
        .config(map=dict(settings))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile='{ROOT / 'conf' / 'log4j2.properties'}'")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def from_queue(
    spark: SparkSession,
    journal: Journal,
    queue: str,
    fn: BatchFunction,
    *,
    columns: str,
    max_backlog: int,
    subscription: str = "bench",
    on_error: str = "fail",
) -> DataStreamWriter:
    """Read a queue as its users do: through `Queue.foreach_batch`, which acknowledges."""
    rows = reading(spark, journal, queue, columns=columns, max_backlog=max_backlog, subscription=subscription)
    return rows.writeStream.foreachBatch(journal.queue(queue).foreach_batch(fn, subscription=subscription, on_error=on_error))


def reading(spark: SparkSession, journal: Journal, queue: str, *, columns: str, max_backlog: int, subscription: str) -> DataFrame:
    """Return the stream of a queue's messages."""
    return (
        spark.readStream.format("sparkqueue")
        .options(**{f"storage.{name}": value for name, value in journal.store.storage_options.items()})
        .option("queue", queue)
        .option("subscription", subscription)
        .option("maxBacklog", max_backlog)
        .option("columns", columns)
        .load(journal.path)
    )


def copied(journal: Journal, message_type: str, place: Path) -> str:
    """Copy a message table as it was published: beside the journal, no coordinator merges its files.

    Files are the only measure of a batch that the Delta source has.
    """
    table = shutil.copytree(journal.store.messages_uri(message_type), place)
    return str(table)


def from_delta(spark: SparkSession, table: str, fn: BatchFunction, *, columns: str, files: int) -> DataStreamWriter:
    """Read such rows by the bare Delta source; nothing shares work, and nothing is acknowledged."""
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", files).load(table)
    # Columns are not pruned through foreachBatch, so they are chosen before it.
    return rows.select(*columns.split(", ")).writeStream.foreachBatch(fn)
