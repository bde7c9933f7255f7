"""A consumer of the kill farm: one driver, whose query is started again whenever it fails, until it is told to stop.

Its sink keeps one small file per run of fn, written before the batch can be proven; the files are what the farm's judgement
rests on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_queue import Journal

#: One message in this many is settled `expire`, so that outcomes are under test too.
EXPIRE_EVERY = 97


def sink_into(folder: Path, subscription: str) -> Callable[[DataFrame, int], DataFrame]:
    """Make a batch function that writes the bookmarks it saw, and names every 97th as not to be booked."""

    def fn(batch: DataFrame, batch_id: int) -> DataFrame:
        rows = batch.select("bookmark", "lease").toArrow()
        seen = {"subscription": subscription, "batch": batch_id, "bookmarks": rows.column("bookmark").to_pylist()}
        partial = folder / f"{uuid.uuid4().hex}.partial"
        partial.write_text(json.dumps(seen))
        partial.rename(partial.with_suffix(".json"))
        doomed = batch.where(f.col("bookmark") % EXPIRE_EVERY == 0)
        return doomed.select("bookmark", f.lit("expire").alias("outcome"), f.lit("every 97th").alias("error"))

    return fn


def main() -> None:
    """Consume until the stop file appears."""
    parser = argparse.ArgumentParser()
    for name in ("journal", "subscription", "folder"):
        parser.add_argument(f"--{name}", required=True)
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
    queue = Journal(arguments.journal).queue("WORK")
    fn = queue.foreach_batch(sink_into(folder / "sink", arguments.subscription), subscription=arguments.subscription)
    stop = folder / "stop"
    while not stop.exists():
        stream = spark.readStream.format("sparkqueue").option("journal", arguments.journal).option("queue", "WORK")
        stream = stream.option("subscription", arguments.subscription).option("maxBacklog", 700)
        query = (
            stream.load().writeStream.foreachBatch(fn)
            .option("checkpointLocation", str(folder / f"checkpoint-{arguments.subscription}")).start()
        )  # fmt: skip
        try:
            while query.isActive and not stop.exists():
                query.awaitTermination(1)
            query.stop()
            query.awaitTermination(10)
        except PySparkException as failure:
            # The planner or the coordinator was killed under it; the next start must pick up where this one was.
            sys.stderr.write(f"{time.strftime('%X')} {arguments.subscription} starts again: {str(failure)[-600:]}\n")
    spark.stop()


if __name__ == "__main__":
    main()
