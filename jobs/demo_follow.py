"""A plain Spark job appends real order lines to a Delta table; a stream and a worker share a queue over it, and the books balance.

python jobs/demo_follow.py      (or: make demo-follow)

The job that appends knows of no queue. While half of the lines wait, it deletes those of a customer, and merges small files into
large ones: each line is booked as it was appended, also one that was deleted. Then the other half comes in beside a VACUUM, with a
DELETE and an OPTIMIZE of its own. The table keeps removed files for a week, as it does by default, so VACUUM leaves those of the
messages. Everything stays in build/demo-follow; the exit code says whether the books balance.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from books_shown import say
from order_file import by_day, read_lines
from reconcile import Entry
from shared_queue import TOPIC, SharedQueue, given_options

#: The customer whose lines are deleted, as the file writes it.
FORGOTTEN = "12748.0"


def run(shared: SharedQueue) -> bool:
    """Do everything; returns whether the books balance."""
    say("a Spark job that knows of no queue appends real order lines to a table, and two consumers share them: some minutes")
    table, days = shared.place / "orders", [day for _, day in by_day(read_lines(shared.file))]
    DeltaTable.create(str(table), days[0].schema)
    shared.create(table=str(table), topics=[TOPIC], on_change="keep")
    say("the type of the order lines follows the table, from now on")
    half = len(days) // 2
    turn = f"{days[half].column('InvoiceDate')[0].as_py():%Y-%m-%d}"
    writes = ["--table", str(table), "--csv", str(shared.file), "--forget", FORGOTTEN]
    first = shared.start("append", *writes, "--to", turn)
    shared.wait("half of them is appended, with a DELETE and an OPTIMIZE (jobs/append.py)", lambda: not first.running)
    shared.start_spark()
    shared.wait("Spark starts (jobs/consume.py)", lambda: shared.status()["subscriptions"] == 1)
    shared.start_worker()
    waiting = sum(day.num_rows for day in days[:half])
    shared.wait("the stream and the worker (jobs/work.py) book them", lambda: shared.settled() == waiting)
    left_over = _files(table) - {str(path) for path in DeltaTable(str(table)).file_uris()}
    second = shared.start("append", *writes, "--from", turn, "--vacuum")
    shared.wait("VACUUM, and the other half comes in", lambda: not second.running)
    total = sum(day.num_rows for day in days)
    shared.wait("they book the rest", lambda: shared.settled() == total)
    passed = shared.journal.view("table_changes", columns=["operation"]).column("operation").to_pylist()
    told = (Entry(f"{name}s that passed", 2, passed.count(name)) for name in ("DELETE", "OPTIMIZE"))
    return shared.balance([*_of_table(table, days, left_over), *told])


def _of_table(table: Path, days: Sequence[pa.Table], left_over: set[str]) -> Iterator[Entry]:
    """Yield the figures of the table itself: what was done to it while its rows were messages."""
    half = len(days) // 2
    deleted = pa.concat_tables(days[: half + (len(days) - half) // 2])
    forgotten = deleted.column("CustomerID").to_pylist().count(FORGOTTEN)
    left = sum(day.num_rows for day in days) - forgotten
    yield Entry("lines that the table still has", left, DeltaTable(str(table)).to_pyarrow_table(columns=["Country"]).num_rows)
    yield Entry("files left over that VACUUM leaves", len(left_over), len(left_over & _files(table)))


def _files(table: Path) -> set[str]:
    return {str(path) for path in table.glob("*.parquet")}


if __name__ == "__main__":
    with SharedQueue(given_options(__doc__, "demo-follow")) as shared_queue:
        balances = run(shared_queue)
    sys.exit(0 if balances else 1)
