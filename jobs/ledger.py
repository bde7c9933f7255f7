"""The totals of closed days: at a close every line of its period stands in the table of booked lines, whoever booked it."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

#: A total of each day, with the bookmark of its last line.
_DAYS: dict[str, pa.DataType] = {"day": pa.date32(), "last": pa.int64(), "lines": pa.int64(), "amount": pa.decimal128(20, 4)}
DAYS = pa.schema(_DAYS)


class Ledger:
    """The days that one consumer has closed; closing them again changes nothing (R20).

    Parameters
    ----------
    booked
        The table of booked lines, which all consumers share.
    closed
        The table of this consumer's closes; it is made on first use.
    """

    def __init__(self, booked: str, closed: str) -> None:
        self._booked = booked
        DeltaTable.create(closed, DAYS, mode="ignore")
        self._days = DeltaTable(closed)
        #: The last line of the newest close.
        self._closed = max((day["last"] for day in self._days.to_pyarrow_table().to_pylist()), default=-1)

    def close(self) -> None:
        """Write the total of each day since the last close."""
        if not DeltaTable.is_deltatable(self._booked):
            return
        total = "SELECT day, max(bookmark) AS last, count(*) AS lines, sum(amount) AS amount"
        since = f"FROM lines WHERE bookmark > {self._closed} GROUP BY day"
        found = QueryBuilder().register("lines", DeltaTable(self._booked)).execute(f"{total} {since}")
        totals = pa.table(found).cast(DAYS)
        if totals.num_rows:
            merge = self._days.merge(totals, "t.day = r.day", source_alias="r", target_alias="t")
            merge.when_not_matched_insert_all().execute()
        self._closed = max((day["last"] for day in totals.to_pylist()), default=self._closed)
