"""Derive revenue per day and country from the table of booked lines.

spark-submit --properties-file conf/spark-defaults.conf jobs/report.py --out build/demo/report build/demo/booked

Each line stands in it once (R123), so nothing is taken out here.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from orders import revenue


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--out", required=True)
    given = parser.parse_args()
    spark = SparkSession.builder.appName("report").getOrCreate()
    revenue(spark.read.format("delta").load(given.table)).coalesce(1).write.mode("overwrite").parquet(given.out)


if __name__ == "__main__":
    main()
