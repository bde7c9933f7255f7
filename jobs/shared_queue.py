"""A queue of order lines that a Spark job and a worker in plain Python share: their starts and ends, and their books."""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from deltalake import DeltaTable
from pyroaring import BitMap64

from books_shown import console, say, show_books
from order_file import ORDERS_CSV, first_lines
from reconcile import Entry, Lives, read_books, reconcile
from spark_queue import Journal
from submitted import ROOT, SPARKQ, Submitted

QUEUE, TOPIC = "ORDER_WORK", "ORDERS"
LINES = 120_000
POLL_S = 0.5


class SharedQueue:
    """One run of a demo, in a directory of its own; as a context manager it ends all that it started."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.place: Path = given.place.resolve()
        self.journal = Journal(str(self.place / "journal"))
        self.clear()
        #: The lines of this run.
        self.file = first_lines(given.csv.resolve(), given.lines, self.place)
        self._table = self.place / "booked"
        self._book = self.place / "worker.sqlite"
        self._jobs: list[Submitted] = []
        self._consumers: list[Submitted] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs:
            job.kill()
        self._stop_coordinator()

    def clear(self) -> None:
        """Remove what the last run left."""
        if (self.place / "journal").exists():
            self._stop_coordinator()
        shutil.rmtree(self.place, ignore_errors=True)
        (self.place / "logs").mkdir(parents=True)

    def create(self, **keys: Any) -> None:
        """Make the journal; with `keys` the type of order lines has these instead of its own."""
        definitions = tomllib.loads((ROOT / "conf" / "queues.toml").read_text(encoding="utf-8"))
        definitions["message_types"]["order_line"] = keys or definitions["message_types"]["order_line"]
        # The closes of books are another demo's, and what a killed consumer had shall come back soon.
        short = {"underlying_topic": TOPIC, "lease_period": "5s", "max_deliveries": 5, "dead_letter_queue": "ORDER_FAILED"}
        definitions["queues"][QUEUE] = short
        Journal.create(self.journal.path, definitions)

    def start_spark(self, *more: str) -> Submitted:
        """Start the Spark job that consumes."""
        where = ["--table", str(self._table), "--checkpoint", str(self.place / "checkpoint"), "--max-backlog", "20000"]
        return self._consumer("consume", "--journal", self.journal.path, "--subscription", "spark", *where, *more)

    def start_worker(self, *more: str) -> Submitted:
        """Start the worker in plain Python."""
        return self._consumer("work", "--journal", self.journal.path, "--book", str(self._book), *more)

    def _consumer(self, job: str, *arguments: str) -> Submitted:
        self._consumers.append(self.start(job, *arguments))
        return self._consumers[-1]

    def start(self, job: str, *arguments: str) -> Submitted:
        """Start a job, which ends with this."""
        self._jobs.append(Submitted(job, *arguments, log=self.place / "logs" / f"{job}.log"))
        return self._jobs[-1]

    def status(self) -> dict[str, Any]:
        """Return the figures of the queue."""
        return dict(self.journal.view("status", queue=QUEUE).to_pylist()[0])

    def settled(self) -> int:
        """Return how many lines have their end."""
        status = self.status()
        return int(status["acknowledged"]) + int(status["dead_letters"])

    def wait(self, what: str, is_done: Callable[[], bool]) -> None:
        """Wait until something is so; no consumer may end meanwhile."""
        with console.status(what):
            while not is_done():
                if any(not job.killed and not job.running for job in self._consumers):
                    raise SystemExit("a consumer ended too early")
                time.sleep(POLL_S)
        say(f"done: {what}")

    def balance(self, more: Iterable[Entry] = ()) -> bool:
        """Show the books, with more entries; returns whether they balance."""
        lives, history = Lives(), self.journal.view("history", queue=QUEUE).to_pylist()
        lives.follow(history)
        by_spark, by_worker = dict(_booked_by_spark(self._table)), dict(_booked_by_worker(self._book))
        both, twice = BitMap64(by_spark.keys() & by_worker.keys()), _granted_twice(history)
        booked, revenue = by_spark | by_worker, defaultdict[tuple[date, str], Decimal](Decimal)
        for day, country, amount in booked.values():
            revenue[day, country] += amount
        entries = list(reconcile(read_books(self.file), lives, BitMap64(booked), {"Spark and worker": revenue}))
        entries.append(Entry("lines that both booked, delivered once", 0, len(both - twice)))
        verified = subprocess.run([*SPARKQ, "verify", self.journal.path], check=False, capture_output=True, text=True)
        entries.append(Entry("sparkq verify: exit code", 0, verified.returncode))
        say(f"Spark booked {len(by_spark):,} lines, the worker {len(by_worker):,}, and {len(both):,} of these both")
        for why, count in Counter({why: count for count, why in lives.redelivered}).items():
            say(f"{count:,} lines were delivered again: {why or 'NOTHING EXPLAINS IT'}")
        return show_books([*entries, *more])

    def _stop_coordinator(self) -> None:
        subprocess.run([*SPARKQ, "stop", self.journal.path], check=False, capture_output=True)


def given_options(what: str, place: str) -> argparse.Namespace:
    """Return the options of a demo: the place of its run, by default below `build`, and its lines."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", type=Path, default=ROOT / "build" / place)
    parser.add_argument("--csv", type=Path, default=ORDERS_CSV)
    parser.add_argument("--lines", type=int, default=LINES, help="how many lines of the file")
    return parser.parse_args()


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
