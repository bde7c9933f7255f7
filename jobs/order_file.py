"""The file of order lines as `publish.py` publishes it: day by day, with the closes between."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice, pairwise, zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

ORDERS_CSV = Path(__file__).parent / "data" / "online-retail.csv.gz"

#: What a close can end, and how a date's is written.
PERIODS = {"day": "%Y-%m-%d", "month": "%Y-%m"}


def first_lines(orders: Path, count: int, place: Path) -> Path:
    """Write the first lines to a file of their own in a directory: what the plain reading of the books reads, too."""
    file = place / "orders.csv.gz"
    with gzip.open(orders, "rb") as all_lines, gzip.open(file, "wb") as some:
        some.writelines(islice(all_lines, count + 1))
    return file


def read_lines(path: Path) -> pa.Table:
    """Read the file; empty texts are NULL."""
    types = {"Quantity": pa.int64(), "InvoiceDate": pa.timestamp("us"), "UnitPrice": pa.float64()}
    texts = dict.fromkeys(("InvoiceNo", "StockCode", "Description", "CustomerID", "Country"), pa.string())
    table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=types | texts, strings_can_be_null=True))
    utc = pc.assume_timezone(table.column("InvoiceDate"), "UTC")
    return table.set_column(table.column_names.index("InvoiceDate"), "InvoiceDate", utc)


def by_day(lines: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield each day's lines, which follow each other in the file, with the number of its first line from 0."""
    days = pc.floor_temporal(lines.column("InvoiceDate"), unit="day").combine_chunks()
    firsts = [0, *(np.flatnonzero(np.diff(days.to_numpy())) + 1).tolist(), lines.num_rows]
    for first, until in pairwise(firsts):
        yield first, lines.slice(first, until - first)


def with_closes(days: Iterator[tuple[int, pa.Table]], period: str) -> Iterator[tuple[int, pa.Table]]:
    """Name the topic of each line, and put a close behind the last of every period; a close takes a number, too."""
    lines, closes = list(days), 0
    dates = [pc.floor_temporal(day.column("InvoiceDate")[0], unit="day").as_py() for _, day in lines]
    for (first, day), date, following in zip_longest(lines, dates, dates[1:]):
        messages = day.append_column("topic", pa.repeat("ORDERS", day.num_rows))
        ends = following is None or f"{date:{PERIODS[period]}}" != f"{following:{PERIODS[period]}}"
        if ends:
            close = {"topic": "ORDERS_CLOSE", "Description": f"close the books of this {period}", "InvoiceDate": date}
            messages = pa.concat_tables([messages, pa.Table.from_pylist([close], schema=messages.schema)])
        yield first + closes, messages
        closes += ends
