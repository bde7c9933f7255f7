"""Book the order lines of a queue into a Delta table of this consumer.

spark-submit --properties-file conf/spark-defaults.conf jobs/consume.py --journal … --subscription east --table … --checkpoint …

Each consumer has a table of its own: two drivers must never write one Delta table on a local disk. MERGE on the bookmark makes
a repeated batch harmless (R20); lines that cannot be booked end as dead letters, with the reason as their error.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit.

from orders import booked, unbookable
from spark_queue import Journal


def main() -> None:
    """Consume until the queue is empty, or for ever."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--journal", "--subscription", "--table", "--checkpoint"):
        parser.add_argument(name, required=True)
    parser.add_argument("--queue", default="ORDER_WORK")
    parser.add_argument("--max-backlog", type=int, default=100_000)
    parser.add_argument("--until-empty", action="store_true", help="end when nothing is left")
    parser.add_argument("--hang-after-batch", type=int, help="for drills: stop dead after this batch's sink write")
    parser.add_argument("--hang-file", type=Path, help="made when it hangs")
    given = parser.parse_args()
    spark = SparkSession.builder.appName(f"consume-{given.subscription}").getOrCreate()
    options = {"queue": given.queue, "subscription": given.subscription, "maxBacklog": given.max_backlog}
    lines = spark.readStream.format("sparkqueue").options(**options).load(given.journal)
    table = DeltaTable.createIfNotExists(spark).location(given.table).addColumns(booked(lines).schema).execute()

    def book(batch: DataFrame, batch_id: int) -> DataFrame:
        table.alias("t").merge(booked(batch).alias("l"), "t.bookmark = l.bookmark").whenNotMatchedInsertAll().execute()
        if batch_id == given.hang_after_batch:
            given.hang_file.touch()
            signal.pause()
        failed = batch.withColumn("error", unbookable()).where("error IS NOT NULL")
        return failed.select("bookmark", F.lit("expire").alias("outcome"), "error")

    book_batch = Journal(given.journal).queue(given.queue).foreach_batch(book, subscription=given.subscription)
    writer = lines.writeStream.foreachBatch(book_batch).option("checkpointLocation", given.checkpoint)
    writer = writer.trigger(availableNow=True) if given.until_empty else writer
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
