"""What a client of Spark Connect does, in a process of its own: it has no JVM, and its server, started beside it, has no fn."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_queue import Journal, configure_spark
from spark_queue.errors import SparkQueueError
from spark_queue.source.spark_versions import TELLS_COMMITTED
from tests.integration.source_journal import MOST_RUNS
from tests.source_tree import ROOT

QUEUE = "WORK"
TOPIC = "ORDERS"
COPIES = "COPIES"


def start(home: str, environment: Mapping[str, str]) -> str:
    """Start a server on this machine, whose tables stand below `home`, and give what kind of session talks to it."""
    os.environ.update(environment)
    # The server runs fn in workers that it starts itself, and this package need not be installed for the tests.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.Builder().remote("local[2]").appName("spark_queue tests of Spark Connect")
    configured = configure_spark(builder).config("spark.sql.shuffle.partitions", "2").config("spark.ui.enabled", "false")
    configured = configured.config("spark.sql.warehouse.dir", f"{home}/warehouse")
    session = configured.getOrCreate()
    return type(session).__module__


def stop() -> None:
    """End the session and its server."""
    SparkSession.active().stop()


def publish(path: str, rows: int) -> None:
    """Publish a DataFrame."""
    frame = SparkSession.active().range(0, rows).select("id", f.lit("x").alias("item"))
    frame.write.format("sparkqueue").option("topic", TOPIC).mode("append").save(path)


def consume(path: str, seen: str) -> None:
    """Consume everything by a wrapped function; every tenth row is expired by name."""

    def fn(batch: DataFrame, batch_id: int) -> DataFrame:
        bookmarks = sorted(row["bookmark"] for row in batch.select("bookmark").collect())
        with Path(seen).open("a") as file:
            file.write(json.dumps(bookmarks) + "\n")
        tenth = batch.where("bookmark % 10 = 0")
        return tenth.select("bookmark", f.lit("expire").alias("outcome"), f.lit("every tenth").alias("error"))

    _run(path, Journal(path).queue(QUEUE).foreach_batch(fn, subscription="s"), maxBacklog=60)


def consume_by_hand(path: str) -> int:
    """Consume into a table with ``ackMode=explicit``, and settle what it holds; returns the number of messages settled."""
    stream = SparkSession.active().readStream.format("sparkqueue")
    stream = stream.options(queue=QUEUE, subscription="by-hand", ackMode="explicit")
    writer = stream.load(path).writeStream.format("parquet").option("checkpointLocation", f"{path}-by-hand-checkpoint")
    writer.trigger(availableNow=True).start(f"{path}-by-hand").awaitTermination()
    Journal(path).prove(f"{path}-by-hand-checkpoint")
    rows = SparkSession.active().read.parquet(f"{path}-by-hand").select("bookmark")
    return Journal(path).queue(QUEUE).settle(rows).acknowledged


def append(path: str, table: str) -> None:
    """Consume everything into a table."""
    wrapped = Journal(path).queue(QUEUE).into(table, lambda batch, _: batch.select("id", "item"), subscription="s")
    _run(path, wrapped, maxBacklog=20)


def merge(path: str, table: str) -> str:
    """Give what a client hears that wants batches to be merged."""
    try:
        Journal(path).queue(QUEUE).into(
            table, subscription="s", writer="spark", merge=lambda target, rows: target.merge(rows, "true")
        )
    except SparkQueueError as refusal:
        return str(refusal)
    return ""


def fail(path: str) -> str:
    """Run a function that raises, and give what the client hears."""

    def fn(batch: DataFrame, batch_id: int) -> None:
        raise RuntimeError(f"the sink of batch {batch_id} is down")

    try:
        _run(path, Journal(path).queue(QUEUE).foreach_batch(fn, subscription="s"))
    except Exception as failure:  # noqa: BLE001  # It is told, and judged elsewhere.
        return str(failure)
    return ""


def copy(path: str) -> None:
    """Publish by a stream: everything of the topic again, under another."""
    stream = (
        SparkSession.active().readStream.format("sparkqueue").options(topic=TOPIC, startingBookmark="earliest", columns="id,item")
    )
    writer = stream.load(path).writeStream.format("sparkqueue").option("topic", COPIES)
    writer = writer.option("checkpointLocation", f"{path}-copy-checkpoint")
    writer.trigger(availableNow=True).start(path).awaitTermination()


def view(path: str) -> list[dict[str, Any]]:
    """Read a view of the queue."""
    frame = SparkSession.active().read.format("sparkqueue").options(queue=QUEUE, view="status").load(path)
    return [row.asDict() for row in frame.collect()]


def _run(path: str, fn: Any, **options: Any) -> None:
    """Run until nothing is left; a Spark before 4.2 takes one batch each time, and then only its checkpoint tells of it."""
    stream = SparkSession.active().readStream.format("sparkqueue").options(queue=QUEUE, subscription="s", **options)
    writer = stream.load(path).writeStream.foreachBatch(fn).option("checkpointLocation", f"{path}-checkpoint")
    for _ in range(1 if TELLS_COMMITTED else MOST_RUNS):
        writer.trigger(availableNow=True).start().awaitTermination()
        Journal(path).prove(f"{path}-checkpoint")
        if not Journal(path).queue(QUEUE).status().queue_depth:
            break
