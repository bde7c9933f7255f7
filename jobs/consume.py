"""Book the order lines of a queue into a Delta table, which any number of consumers share.

spark-submit --properties-file conf/spark-defaults.conf jobs/consume.py --journal … --subscription east --table … --checkpoint …

Lines and their acknowledgement are one commit, so each stands in the table once (R123). What cannot be booked becomes a dead
letter.
"""

from __future__ import annotations

import argparse
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit.

from ledger import Ledger
from orders import judged
from spark_queue import Journal
from spark_queue.clock import SystemClock


def main() -> None:
    """Consume until the queue is empty, or for ever."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--journal", "--subscription", "--table", "--checkpoint"):
        parser.add_argument(name, required=True)
    parser.add_argument("--queue", default="ORDER_WORK")
    parser.add_argument("--max-backlog", type=int, default=100_000)
    parser.add_argument("--until-empty", action="store_true", help="end when nothing is left")
    parser.add_argument("--check", action="store_true", help="end with 3 if a line died meanwhile, or somebody should look")
    parser.add_argument("--hang", nargs=2, metavar=("BATCH", "FILE"), help="for drills: hang after a commit, and make a file")
    given = parser.parse_args()
    began = datetime.fromtimestamp(SystemClock().wall_ms() / 1_000, UTC)
    spark = SparkSession.builder.appName(f"consume-{given.subscription}").getOrCreate()
    queue = Journal(given.journal).queue(given.queue)
    options = {"queue": given.queue, "subscription": given.subscription, "maxBacklog": given.max_backlog}
    lines = spark.readStream.format("sparkqueue").options(**options).load(given.journal)
    ledger = Ledger(given.table, f"{given.table}-closed-{given.subscription}")

    def book(batch: DataFrame, _batch_id: int) -> tuple[DataFrame, DataFrame]:
        found = judged(batch).withColumn("consumer", F.lit(given.subscription))
        unbookable = found.where("error IS NOT NULL").select("bookmark", F.lit("expire").alias("outcome"), "error")
        return found.where("error IS NULL").drop("error"), unbookable

    def close(_batch: DataFrame, _batch_id: int) -> None:
        ledger.close()

    booking = queue.into(given.table, book, subscription=given.subscription, on_barrier=close)

    def booked(batch: DataFrame, batch_id: int) -> None:
        booking(batch, batch_id)
        if given.hang and batch_id >= int(given.hang[0]):
            Path(given.hang[1]).touch()
            signal.pause()

    query = lines.writeStream.foreachBatch(booked).option("checkpointLocation", given.checkpoint).start()
    while not query.awaitTermination(5):
        if given.until_empty and queue.status().queue_depth == 0:
            query.processAllAvailable()  # A barrier that was released just now comes first.
            query.stop()
    spark.stop()
    if given.check:
        check = queue.check(since=began)
        print(check)
        sys.exit(check.exit_code)


if __name__ == "__main__":
    main()
