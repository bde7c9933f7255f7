"""A Spark job and a worker in plain Python share one queue of real order lines; one of each is killed, and the books balance.

python jobs/demo_work.py        (or: make demo-work)

The Spark job appends to a Delta table, once for each line. The worker books into a SQLite file, at least once. Each is killed with
SIGKILL when lines of it are written down and not acknowledged, and each is started again. Everything stays in build/demo-work; the
exit code says whether the books balance.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyroaring import BitMap64

from books_shown import console, say, show_books
from order_file import ORDERS_CSV, by_day, first_lines, read_lines
from reconcile import Entry, Lives, read_books, reconcile
from spark_queue import Journal
from submitted import ROOT, SPARKQ, Submitted

QUEUE, TOPIC = "ORDER_WORK", "ORDERS"
LINES = 120_000
POLL_S = 0.5

#: The micro-batch of the Spark job (from 0), and the line of the worker, with which each hangs until it is killed.
FATAL_BATCH, FATAL_LINE = 2, 10_000


class WorkDemo:
    """One run, in a directory of its own."""

    def __init__(self, place: Path, orders: Path, lines: int) -> None:
        self._place = place
        self._orders = orders
        self._lines = lines
        self._journal = Journal(str(place / "journal"))
        self._table = place / "booked"
        self._book = place / "worker.sqlite"
        self._jobs: list[Submitted] = []

    def run(self) -> bool:
        """Do everything; returns whether the books balance."""
        try:
            say("a Spark job and a worker in plain Python share real order lines; each is killed once: about a minute")
            self._clear()
            file = first_lines(self._orders, self._lines, self._place)
            definitions = tomllib.loads((ROOT / "conf" / "queues.toml").read_text(encoding="utf-8"))
            # The closes of books are another demo's, and what a killed consumer had shall come back soon.
            short = {"underlying_topic": TOPIC, "lease_period": "5s", "max_deliveries": 5, "dead_letter_queue": "ORDER_FAILED"}
            definitions["queues"][QUEUE] = short
            Journal.create(self._journal.path, definitions)
            hangs = {name: self._place / f"{name}-hangs" for name in ("spark", "worker")}
            spark = self._start_spark("--hang", str(FATAL_BATCH), str(hangs["spark"]))
            self._wait("Spark starts (jobs/consume.py)", lambda: self._status()["subscriptions"] == 1)
            worker = self._start_worker("--hang", str(FATAL_LINE), str(hangs["worker"]))
            self._wait("the worker starts (jobs/work.py)", lambda: self._status()["subscriptions"] == 2)
            published = sum(self._journal.publish(day, topic=TOPIC).rows for _, day in by_day(read_lines(file)))
            say(f"publish {published:,} lines, a commit for each day")
            self._wait("both have lines written down and not acknowledged", lambda: all(each.exists() for each in hangs.values()))
            for job in (spark, worker):
                job.kill()
            say("both are killed with SIGKILL, and started again; what they had comes back when their leases end")
            self._start_spark()
            self._start_worker()
            self._wait("they finish the rest", lambda: self._settled() == published)
            return self._balance(file)
        finally:
            for job in self._jobs:
                job.kill()
            self._stop_coordinator()

    def _clear(self) -> None:
        if (self._place / "journal").exists():
            self._stop_coordinator()
        shutil.rmtree(self._place, ignore_errors=True)
        (self._place / "logs").mkdir(parents=True)

    def _stop_coordinator(self) -> None:
        subprocess.run([*SPARKQ, "stop", self._journal.path], check=False, capture_output=True)

    def _start_spark(self, *more: str) -> Submitted:
        where = ["--table", str(self._table), "--checkpoint", str(self._place / "checkpoint"), "--max-backlog", "20000"]
        return self._start("consume", "--journal", self._journal.path, "--subscription", "spark", *where, *more)

    def _start_worker(self, *more: str) -> Submitted:
        return self._start("work", "--journal", self._journal.path, "--book", str(self._book), *more)

    def _start(self, job: str, *arguments: str) -> Submitted:
        self._jobs.append(Submitted(job, *arguments, log=self._place / "logs" / f"{job}.log"))
        return self._jobs[-1]

    def _status(self) -> dict[str, Any]:
        return dict(self._journal.view("status", queue=QUEUE).to_pylist()[0])

    def _settled(self) -> int:
        status = self._status()
        return int(status["acknowledged"]) + int(status["dead_letters"])

    def _wait(self, what: str, is_done: Callable[[], bool]) -> None:
        with console.status(what):
            while not is_done():
                if any(not job.killed and not job.running for job in self._jobs):
                    raise SystemExit("a consumer ended too early")
                time.sleep(POLL_S)
        say(f"done: {what}")

    def _balance(self, file: Path) -> bool:
        lives, history = Lives(), self._journal.view("history", queue=QUEUE).to_pylist()
        lives.follow(history)
        by_spark, by_worker = dict(_booked_by_spark(self._table)), dict(_booked_by_worker(self._book))
        both, twice = BitMap64(by_spark.keys() & by_worker.keys()), _granted_twice(history)
        booked, revenue = by_spark | by_worker, defaultdict[tuple[date, str], Decimal](Decimal)
        for day, country, amount in booked.values():
            revenue[day, country] += amount
        entries = list(reconcile(read_books(file), lives, BitMap64(booked), {"Spark and worker": revenue}))
        entries.append(Entry("lines that both booked, delivered once", 0, len(both - twice)))
        verified = subprocess.run([*SPARKQ, "verify", self._journal.path], check=False, capture_output=True, text=True)
        entries.append(Entry("sparkq verify: exit code", 0, verified.returncode))
        say(f"Spark booked {len(by_spark):,} lines, the worker {len(by_worker):,}, and {len(both):,} of these both")
        for why, count in Counter({why: count for count, why in lives.redelivered}).items():
            say(f"{count:,} lines were delivered again: {why or 'NOTHING EXPLAINS IT'}")
        return show_books(entries)


Line = tuple[date, str, Decimal]


def _booked_by_spark(table: Path) -> Iterable[tuple[int, Line]]:
    columns = ["bookmark", "day", "Country", "amount"]
    for row in DeltaTable(str(table)).to_pyarrow_table(columns=columns).to_pylist():
        yield row["bookmark"], (row["day"], row["Country"], row["amount"])


def _booked_by_worker(book: Path) -> Iterable[tuple[int, Line]]:
    with closing(sqlite3.connect(book)) as found:
        for bookmark, day, country, amount in found.execute("SELECT bookmark, day, country, amount FROM booked"):
            yield bookmark, (date.fromisoformat(day), country, Decimal(amount))


def _granted_twice(history: Iterable[Mapping[str, Any]]) -> BitMap64:
    """Return the lines that the log says were granted more than once."""
    once, twice = BitMap64(), BitMap64()
    for record in history:
        if record["kind"] in ("granted", "resumed") and not json.loads(record["detail"]).get("barrier"):
            rows = BitMap64()
            for piece in record["ranges"]:
                rows.add_range(piece["first"], piece["until"])
            twice |= once & rows
            once |= rows
    return twice


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", type=Path, default=ROOT / "build" / "demo-work")
    parser.add_argument("--csv", type=Path, default=ORDERS_CSV)
    parser.add_argument("--lines", type=int, default=LINES, help="how many lines of the file")
    given = parser.parse_args()
    sys.exit(0 if WorkDemo(given.place.resolve(), given.csv.resolve(), given.lines).run() else 1)
