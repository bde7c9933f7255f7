"""Publish the order lines of a CSV file, one commit for each day of data.

spark-submit --properties-file conf/spark-defaults.conf jobs/publish.py --journal build/demo/journal

Lines are numbered by their place in the file, so a second run publishes nothing twice (R95). Its times are read as UTC.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from rich.progress import track

from spark_queue import Journal

ORDERS_CSV = Path(__file__).parent / "data" / "online-retail.csv.gz"


def main() -> None:
    """Publish every day of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--csv", type=Path, default=ORDERS_CSV)
    parser.add_argument("--topic", default="ORDERS")
    given = parser.parse_args()
    days = list(by_day(read_lines(given.csv)))
    published = duplicates = 0
    with Journal(given.journal).publisher("online-retail") as publisher:
        for first, day in track(days, description="publishing days"):
            done = publisher.publish(day, topic=given.topic, first_sequence=first + 1)
            published, duplicates = published + done.rows, duplicates + done.duplicates
    print(f"published {published:,} lines of {len(days)} days; {duplicates:,} were there already")


def read_lines(path: Path) -> pa.Table:
    """Read the file; empty texts are NULL."""
    types = {"Quantity": pa.int64(), "InvoiceDate": pa.timestamp("us"), "UnitPrice": pa.float64()}
    texts = dict.fromkeys(("InvoiceNo", "StockCode", "Description", "CustomerID", "Country"), pa.string())
    table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=types | texts, strings_can_be_null=True))
    utc = pc.assume_timezone(table.column("InvoiceDate"), "UTC")
    return table.set_column(table.column_names.index("InvoiceDate"), "InvoiceDate", utc)


def by_day(lines: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Give each day's lines, which follow each other in the file, with the number of its first line from 0."""
    days = pc.floor_temporal(lines.column("InvoiceDate"), unit="day").combine_chunks()
    firsts = [0, *(np.flatnonzero(np.diff(days.to_numpy())) + 1).tolist(), lines.num_rows]
    for first, until in pairwise(firsts):
        yield first, lines.slice(first, until - first)


if __name__ == "__main__":
    main()
