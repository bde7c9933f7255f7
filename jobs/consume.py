"""Book the order lines of a queue into a Delta table of this consumer.

spark-submit --properties-file conf/spark-defaults.conf jobs/consume.py --journal … --subscription east --table … --checkpoint …

Each driver has its own table; a repeated batch changes nothing there (R20). What cannot be booked ends as a dead letter.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ledger import Ledger
from orders import judged
from spark_queue import Journal


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
    ledger = Ledger(given.table, of_instance="origin" in lines.columns)

    def book(batch: DataFrame, batch_id: int) -> pa.Table:
        unbookable = ledger.book(judged(batch).toArrow())  # Once: each Spark job on a batch reads it anew.
        if given.hang and batch_id >= int(given.hang[0]):
            Path(given.hang[1]).touch()
            signal.pause()
        return unbookable.append_column("outcome", pa.repeat("expire", unbookable.num_rows))

    def close(_batch: DataFrame, _batch_id: int) -> None:
        ledger.close()

    book_batch = queue.foreach_batch(book, subscription=given.subscription, on_barrier=close)
    query = lines.writeStream.foreachBatch(book_batch).option("checkpointLocation", given.checkpoint).start()
    while not query.awaitTermination(5):
        if given.until_empty and queue.status().queue_depth == 0:
            query.processAllAvailable()  # A barrier that was released just now comes first.
            query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
