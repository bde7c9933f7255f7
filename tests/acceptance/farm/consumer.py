"""A consumer of the kill farm: one driver, whose query is started again whenever it fails, until it is told to stop.

Its sink keeps one small file per run of fn, written before the batch can be proven; the files are what judgement rests on.
With ``--counts`` the query is stateful: it counts messages per item, and stops at gates. With ``--into`` what is acknowledged is
appended to a Delta table, too, by the commit that acknowledges it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_queue import Journal, Queue
from tests.acceptance.farm.gates import IN_FN, SINK_WRITTEN, GatedSource, Gates
from tests.acceptance.farm.load import CANCEL_EVERY, EXPIRE_EVERY

#: What Spark says of a checkpoint whose first offsets were never written whole.
_NO_BEGINNING = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"


def sink_into(folder: Path, subscription: str) -> Callable[[DataFrame, int], DataFrame]:
    """Make a batch function that writes the bookmarks it saw, and cancels or expires some of them."""

    def fn(batch: DataFrame, batch_id: int) -> DataFrame:
        rows = batch.select("bookmark", "lease").toArrow()
        seen = {"subscription": subscription, "batch": batch_id, "bookmarks": rows.column("bookmark").to_pylist()}
        _write(folder, seen)
        is_doomed = f.col("bookmark") % EXPIRE_EVERY == 0
        is_early = (f.col("bookmark") % CANCEL_EVERY == 0) & (f.col("cancel_count") == 0)
        outcome = f.when(is_doomed, "expire").when(is_early, "cancel")
        lines = batch.where("NOT is_barrier").select("bookmark", outcome.alias("outcome"), f.lit("one in many").alias("error"))
        return lines.where("outcome IS NOT NULL")

    return fn


def into_table(
    queue: Queue, table: str, exceptions: Callable[[DataFrame, int], DataFrame], subscription: str
) -> Callable[[DataFrame, int], None]:
    """Let what is acknowledged be appended to a table, by the commit that acknowledges it."""

    def fn(batch: DataFrame, batch_id: int) -> tuple[None, DataFrame]:
        return None, exceptions(batch, batch_id)

    def on_barrier(batch: DataFrame, batch_id: int) -> None:
        exceptions(batch, batch_id)

    return queue.into(table, fn, subscription=subscription, on_barrier=on_barrier)


def counts_into(folder: Path, gates: Gates) -> Callable[[DataFrame, int], None]:
    """Make a batch function that writes the counts it was given."""

    def fn(batch: DataFrame, batch_id: int) -> None:
        gates.stop_at(IN_FN)
        _write(folder, {"batch": batch_id, "counts": {row["item"]: row["n"] for row in batch.collect()}})
        gates.stop_at(SINK_WRITTEN)

    return fn


def _write(folder: Path, seen: dict[str, Any]) -> None:
    partial = folder / f"{uuid.uuid4().hex}.partial"
    partial.write_text(json.dumps(seen))
    partial.rename(partial.with_suffix(".json"))


def _counted(messages: DataFrame) -> DataFrame:
    return messages.groupBy(f.get_json_object("value", "$.item").alias("item")).agg(f.count("*").alias("n"))


def main() -> None:
    """Consume until the stop file appears."""
    parser = argparse.ArgumentParser()
    for name in ("journal", "subscription", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--queue", default="WORK")
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--into")
    arguments = parser.parse_args()
    folder = Path(arguments.folder)
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(GatedSource)
    queue, sink, gates = Journal(arguments.journal).queue(arguments.queue), folder / "sink", Gates(folder=folder)
    batch_function = counts_into(sink, gates) if arguments.counts else sink_into(sink, arguments.subscription)
    if arguments.into is None:
        fn = queue.foreach_batch(batch_function, subscription=arguments.subscription)
    else:
        fn = into_table(queue, arguments.into, sink_into(sink, arguments.subscription), arguments.subscription)
    stop, checkpoint = folder / "stop", folder / f"checkpoint-{arguments.subscription}"
    while not stop.exists():
        try:
            stream = spark.readStream.format(GatedSource.name() if arguments.counts else "sparkqueue")
            stream = stream.option("queue", arguments.queue).option("subscription", arguments.subscription)
            messages = stream.option("maxBacklog", 700).load(arguments.journal)
            writer = (_counted(messages) if arguments.counts else messages).writeStream.outputMode("update").foreachBatch(fn)
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            while query.isActive and not stop.exists():
                query.awaitTermination(1)
            query.stop()
            query.awaitTermination(10)
        except PySparkException as failure:
            # The planner, a worker or the coordinator was killed under it, or a worker that Spark kept to plan the next start;
            # that start must pick up where this one was.
            sys.stderr.write(f"{time.strftime('%X')} {arguments.subscription} starts again: {str(failure)[:1_000]}\n")
            if _NO_BEGINNING in str(failure):
                # As the troubleshooting says: Spark never starts with what a kill left of the first offsets.
                shutil.rmtree(checkpoint)
    spark.stop()


if __name__ == "__main__":
    main()
