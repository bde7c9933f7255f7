"""Derive revenue per day and country from the tables of all consumers, taking each bookmark once.

spark-submit --properties-file conf/spark-defaults.conf jobs/report.py --out build/demo/report build/demo/east build/demo/west

A line that two consumers booked, because a lease ended between one's write and its proof, counts once (R20).
"""

from __future__ import annotations

import argparse
import functools

from pyspark.sql import DataFrame, SparkSession

from orders import revenue


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--out", required=True)
    given = parser.parse_args()
    spark = SparkSession.builder.appName("report").getOrCreate()
    tables = [spark.read.format("delta").load(path) for path in given.tables]
    lines = functools.reduce(DataFrame.unionByName, tables).dropDuplicates(["bookmark"])
    revenue(lines).coalesce(1).write.mode("overwrite").parquet(given.out)


if __name__ == "__main__":
    main()
