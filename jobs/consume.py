"""Book the order lines of a queue into a Delta table of this consumer.

spark-submit --properties-file conf/spark-defaults.conf jobs/consume.py --journal … --subscription east --table … --checkpoint …

Two drivers must never write one Delta table on a local disk, so each has its own. MERGE makes a repeated batch harmless (R20);
lines that cannot be booked end as dead letters, with the reason. A close is a barrier: it comes when all before it is settled.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit.

from orders import booked, closed_days, unbookable
from spark_queue import Journal
from tables import create, insert


def main() -> None:
    """Consume until the queue is empty, or for ever."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--journal", "--subscription", "--table", "--checkpoint"):
        parser.add_argument(name, required=True)
    parser.add_argument("--queue", default="ORDER_WORK")
    parser.add_argument("--max-backlog", type=int, default=100_000)
    parser.add_argument("--until-empty", action="store_true", help="end when nothing is left")
    parser.add_argument("--hang", nargs=2, metavar=("BATCH", "FILE"), help="for drills: hang after a sink write, and make a file")
    given = parser.parse_args()
    spark = SparkSession.builder.appName(f"consume-{given.subscription}").getOrCreate()
    queue = Journal(given.journal).queue(given.queue)
    options = {"queue": given.queue, "subscription": given.subscription, "maxBacklog": given.max_backlog}
    lines = spark.readStream.format("sparkqueue").options(**options).load(given.journal)
    table = create(spark, given.table, booked(lines))
    closed = create(spark, f"{given.table}-closed", closed_days(table.toDF(), 0))

    def book(batch: DataFrame, batch_id: int) -> DataFrame | None:
        if close := batch.where("is_barrier").head():
            insert(closed_days(table.toDF(), close.bookmark), closed, "day")
            return None
        insert(booked(batch), table, "bookmark")
        if given.hang and batch_id >= int(given.hang[0]):
            Path(given.hang[1]).touch()
            signal.pause()
        return batch.select("bookmark", F.lit("expire").alias("outcome"), unbookable().alias("error")).where("error IS NOT NULL")

    book_batch = queue.foreach_batch(book, subscription=given.subscription)
    query = lines.writeStream.foreachBatch(book_batch).option("checkpointLocation", given.checkpoint).start()
    while not query.awaitTermination(5):
        if given.until_empty and queue.status().queue_depth == 0:
            query.processAllAvailable()  # A barrier that was released just now comes first.
            query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
