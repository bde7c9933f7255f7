"""Reprocess a range of the journal: revenue per day and country straight from the published lines.

spark-submit --properties-file conf/spark-defaults.conf jobs/replay.py --journal … --out build/demo/replay

Reads the topic from a bookmark or a time, without leases and without touching any queue (R8). With --plain-delta it reads the
message table as the Delta table that it is, without spark_queue: the whole of it, since bookmarks are not stored.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from orders import booked, revenue


def main() -> None:
    """Write the revenue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--topic", default="ORDERS")
    parser.add_argument("--from", dest="starting", default="earliest", help="bookmark or ISO-8601 time, inclusive")
    parser.add_argument("--to", dest="ending", default="latest", help="bookmark or ISO-8601 time, exclusive")
    parser.add_argument("--plain-delta", action="store_true")
    given = parser.parse_args()
    spark = SparkSession.builder.appName("replay").getOrCreate()
    if given.plain_delta:
        lines = spark.read.format("delta").load(f"{given.journal}/messages/order_line").where(f"topic = '{given.topic}'")
    else:
        options = {"topic": given.topic, **position("starting", given.starting), **position("ending", given.ending)}
        lines = spark.read.format("sparkqueue").options(**options).load(given.journal)
    revenue(booked(lines)).coalesce(1).write.mode("overwrite").parquet(given.out)


def position(edge: str, value: str) -> dict[str, str]:
    """Return the option that names a place in the log."""
    is_bookmark = value in ("earliest", "latest") or value.isdecimal()
    return {f"{edge}{'Bookmark' if is_bookmark else 'Timestamp'}": value}


if __name__ == "__main__":
    main()
