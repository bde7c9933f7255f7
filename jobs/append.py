"""Append the order lines of a CSV file to a Delta table, a commit for each day, and look after the table: it knows of no queue.

spark-submit --properties-file conf/spark-defaults.conf jobs/append.py --table build/demo-follow/orders

Half way a customer's lines are deleted, and small files are merged into large ones. With --vacuum the files that are left over for
longer than the table keeps them are deleted first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit.

_ORDERS_CSV = Path(__file__).parent / "data" / "online-retail.csv.gz"
_COLUMNS = (
    "InvoiceNo STRING, StockCode STRING, Description STRING, Quantity BIGINT, InvoiceDate TIMESTAMP, UnitPrice DOUBLE, "
    "CustomerID STRING, Country STRING"
)


def main() -> None:
    """Append the days, and do the table's chores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", required=True)
    parser.add_argument("--csv", type=Path, default=_ORDERS_CSV)
    parser.add_argument("--from", dest="first", default="0000-00-00", help="the first day, such as 2010-12-01")
    parser.add_argument("--to", dest="until", default="9999-99-99", help="the day behind the last")
    parser.add_argument("--forget", required=True, metavar="CUSTOMER", help="the customer whose lines are deleted half way")
    parser.add_argument("--vacuum", action="store_true")
    given = parser.parse_args()
    # By default VACUUM lists a table in 10,000 tasks, which takes minutes on one machine.
    listing = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    spark = SparkSession.builder.appName("append").config(listing, 4).getOrCreate()
    if given.vacuum:
        spark.sql(f"VACUUM delta.`{given.table}`")
    lines = spark.read.csv(str(given.csv), header=True, schema=_COLUMNS, timestampFormat="yyyy-MM-dd HH:mm:ss")
    days = _days(lines.withColumn("day", F.to_date("InvoiceDate").cast("string")), given.first, given.until)
    for number, day in enumerate(days):
        if number == len(days) // 2:
            # Delta's DELETE takes no parameters.
            spark.sql(f"DELETE FROM delta.`{given.table}` WHERE CustomerID = '{given.forget}'")  # noqa: S608
            spark.sql(f"OPTIMIZE delta.`{given.table}`")
        day.write.format("delta").mode("append").save(given.table)
    spark.stop()


def _days(lines: DataFrame, first: str, until: str) -> list[DataFrame]:
    """Return the lines of each day from `first` to before `until`."""
    wanted = lines.where((F.col("day") >= first) & (F.col("day") < until)).cache()
    names = sorted(row["day"] for row in wanted.select("day").distinct().collect())
    return [wanted.where(F.col("day") == name).drop("day") for name in names]


if __name__ == "__main__":
    main()
