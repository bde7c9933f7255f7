"""A plain Spark job appends real order lines to a Delta table; a stream and a worker share a queue over it, and the books balance.

python jobs/demo_follow.py      (or: make demo-follow)

The job that appends knows of no queue. While half of the lines wait, it deletes those of a customer, and merges small files into
large ones. The table keeps removed files for half a minute, and nobody consumes for longer. So the lines that wait in such files
are copied by `sparkq follow --catch-up`, before VACUUM deletes the files. Then the other half comes in, with another DELETE and
OPTIMIZE, while a stream and a worker consume: each line is booked as it was appended, also one that was deleted, and those whose
files VACUUM took are read from their copies. Everything stays in build/demo-follow; the exit code says whether the books balance.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from books_shown import say
from order_file import by_day, read_lines
from reconcile import Entry
from shared_queue import TOPIC, SharedQueue, given_options
from submitted import SPARKQ

#: The customer whose lines are deleted, as the file writes it.
FORGOTTEN = "12748.0"

#: How long the table keeps a removed file, in seconds.
RETENTION_S = 30


def run(shared: SharedQueue) -> bool:
    """Do everything; returns whether the books balance."""
    say("a Spark job that knows of no queue appends real order lines to a table, and two consumers share them: some minutes")
    table, days = shared.place / "orders", [day for _, day in by_day(read_lines(shared.file))]
    keeps = {"delta.deletedFileRetentionDuration": f"interval {RETENTION_S} seconds"}
    DeltaTable.create(str(table), days[0].schema, configuration=keeps)
    shared.create(table=str(table), topics=[TOPIC], on_change="keep")
    say("the type of the order lines follows the table, from now on")
    half = len(days) // 2
    turn = f"{days[half].column('InvoiceDate')[0].as_py():%Y-%m-%d}"
    writes = ["--table", str(table), "--csv", str(shared.file), "--forget", FORGOTTEN]
    first = shared.start("append", *writes, "--to", turn)
    shared.wait("half of them is appended, with a DELETE and an OPTIMIZE (jobs/append.py)", lambda: not first.running)
    until_s = time.monotonic() + RETENTION_S
    shared.wait("VACUUM may delete the files that this removed", lambda: time.monotonic() >= until_s)
    caught_up = subprocess.run([*SPARKQ, "follow", shared.journal.path, "--catch-up"], check=False, capture_output=True)
    say("the lines that wait in these files are copied (sparkq follow --catch-up)")
    left_over, copied = _left_over(table), _lines_in_copies(shared)
    second = shared.start("append", *writes, "--from", turn, "--vacuum")
    shared.wait("VACUUM deletes the files", lambda: not left_over & _files(table) or not second.running)
    taken = len(left_over - _files(table))
    shared.start_spark()
    shared.wait("Spark starts (jobs/consume.py)", lambda: shared.status()["subscriptions"] == 1)
    shared.start_worker()
    shared.wait("the other half comes in, while the stream and the worker (jobs/work.py) book", lambda: not second.running)
    total = sum(day.num_rows for day in days)
    shared.wait("they book the rest", lambda: shared.settled() == total)
    passed = shared.journal.view("table_changes", columns=["operation"]).column("operation").to_pylist()
    told = (Entry(f"{name}s that passed", 2, passed.count(name)) for name in ("DELETE", "OPTIMIZE"))
    vacuumed = (
        Entry("sparkq follow --catch-up: exit code", 0, caught_up.returncode),
        Entry("files left over that VACUUM took", len(left_over), taken),
        # OPTIMIZE had merged all that was appended before it.
        Entry("lines in them, read from copies", sum(day.num_rows for day in days[: half // 2]), copied),
    )
    return shared.balance([_of_table(table, days), *vacuumed, *told])


def _of_table(table: Path, days: Sequence[pa.Table]) -> Entry:
    """Return how many lines the table has in the end: all but those that were deleted while they were messages."""
    half = len(days) // 2
    deleted = pa.concat_tables(days[: half + (len(days) - half) // 2])
    forgotten = deleted.column("CustomerID").to_pylist().count(FORGOTTEN)
    left = sum(day.num_rows for day in days) - forgotten
    return Entry("lines that the table still has", left, DeltaTable(str(table)).to_pyarrow_table(columns=["Country"]).num_rows)


def _lines_in_copies(shared: SharedQueue) -> int:
    """Return how many lines the log says were copied out of the table's files."""
    history = shared.journal.view("history").to_pylist()
    moved = [file for record in history if record["kind"] == "moved" for file in json.loads(record["detail"])["files"]]
    return sum(until - first for file in moved for first, until in file["kept"])


def _left_over(table: Path) -> set[str]:
    return _files(table) - {str(path) for path in DeltaTable(str(table)).file_uris()}


def _files(table: Path) -> set[str]:
    return {str(path) for path in table.glob("*.parquet")}


if __name__ == "__main__":
    with SharedQueue(given_options(__doc__, "demo-follow")) as shared_queue:
        balances = run(shared_queue)
    sys.exit(0 if balances else 1)
