"""What a consumer writes: a Delta table of the lines that it booked, and one of the days that it closed.

A batch of this queue ends at the close of a day, so it is some thousand lines. delta-rs merges those from the driver with a
thirtieth of the processor time that Spark's MERGE takes for its jobs. Batches that fit no driver go through Spark's writer.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

_LINES: dict[str, pa.DataType] = {
    "bookmark": pa.int64(),
    "InvoiceNo": pa.string(),
    "Country": pa.string(),
    "day": pa.date32(),
    "amount": pa.decimal128(20, 4),
}
_ORIGIN: dict[str, pa.DataType] = {"origin": pa.string(), "origin_bookmark": pa.int64()}
_DAYS: dict[str, pa.DataType] = {"day": pa.date32(), "last": pa.int64(), "lines": pa.int64(), "amount": pa.decimal128(20, 4)}

LINES = pa.schema(_LINES)

#: Of a queue that several sites share: which line of which site it is, whoever books it.
ORIGIN = pa.schema(_ORIGIN)

#: A total of each day, with the bookmark of its last line.
DAYS = pa.schema(_DAYS)


#: Small files of a table that are made one when this many have come together.
MOST_FILES = 32


class Ledger:
    """The two tables of one consumer, made on first use; writing the same again changes nothing (R20).

    Parameters
    ----------
    path
        Of the lines; the days stand beside it.
    of_instance
        Whether lines say where they were first published.
    """

    def __init__(self, path: str, *, of_instance: bool = False) -> None:
        self._columns = pa.schema([*LINES, *(ORIGIN if of_instance else ())])
        self._lines = _table(path, self._columns)
        self._days = _table(f"{path}-closed", DAYS)
        #: The last line of the newest close.
        self._closed = max((day["last"] for day in self._days.to_pyarrow_table().to_pylist()), default=-1)

    def book(self, lines: pa.Table) -> pa.Table:
        """Write the lines that can be booked and are not there yet; returns bookmark and error of the others.

        Parameters
        ----------
        lines
            Columns as in `LINES`, `ORIGIN` of an instance, and `error`.
        """
        is_bad = pc.is_valid(lines.column("error"))
        _insert(lines.filter(pc.invert(is_bad)).select(self._columns.names).cast(self._columns), self._lines, "bookmark")
        return lines.filter(is_bad).select(["bookmark", "error"])

    def close(self) -> None:
        """Write the total of each day since the last close: all its lines are here, since the queue held the close behind them."""
        total = "SELECT day, max(bookmark) AS last, count(*) AS lines, sum(amount) AS amount"
        since = f"FROM lines WHERE bookmark > {self._closed} GROUP BY day"
        totals = pa.table(QueryBuilder().register("lines", self._lines).execute(f"{total} {since}")).cast(DAYS)
        _insert(totals, self._days, "day")
        self._closed = max((day["last"] for day in totals.to_pylist()), default=self._closed)
        for table in (self._lines, self._days):
            # Each merge looks at every file of its table.
            if len(table.file_uris()) >= MOST_FILES:
                table.optimize.compact()


def _table(path: str, columns: pa.Schema) -> DeltaTable:
    DeltaTable.create(path, columns, mode="ignore")
    return DeltaTable(path)


def _insert(rows: pa.Table, table: DeltaTable, key: str) -> None:
    """Write the rows whose key is not in the table."""
    if rows.num_rows:
        # The range tells delta-rs which of the table's files can hold the keys at all.
        low, high = pc.min(rows.column(key)), pc.max(rows.column(key))
        same = f"t.{key} = r.{key} AND t.{key} BETWEEN '{low}' AND '{high}'"
        table.merge(rows, same, source_alias="r", target_alias="t").when_not_matched_insert_all().execute()
