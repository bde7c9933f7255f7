"""The whole of it on half a million real order lines: publish, consume with two Spark jobs, kill one, balance the books.

python jobs/demo.py                (or: make demo)
python jobs/demo.py --close day    (or: make demo DAILY=1)

Both consumers append to one Delta table, and the books balance by that table alone. The books of each month are closed with a
barrier, which both consumers receive when all its lines are settled. A consumer is killed with SIGKILL after its batch stands in
the table and before Spark has committed it: the moment at which a queue doubles work if it can. Everything stays in build/demo
to be looked at; the exit code says whether the books balance.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyroaring import BitMap64
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from books_shown import console, say, show_books
from order_file import ORDERS_CSV, PERIODS
from reconcile import (
    Books,
    Entry,
    Lives,
    expected_closes,
    read_bookmarks,
    read_books,
    read_closed,
    read_revenue,
    read_shares,
    read_totals,
    reconcile,
    reconcile_closes,
)
from spark_queue import Journal
from submitted import ROOT, SPARKQ, Submitted

QUEUE = "ORDER_WORK"
CONSUMERS = ("east", "west")

#: The consumer that is killed, and the first micro-batch (from 0) between whose commit and proof it may die.
VICTIM, FATAL_BATCH = "east", 3
MAX_BACKLOG = 50_000
POLL_S = 1.0

#: What closing these books takes on two idle cores. Each close is a barrier, and all wait for what is before it.
LASTS = {"day": "8 minutes", "month": "2 minutes"}

#: A look at the queue folds its log from the last snapshot, so the bar moves only now and then.
POLLS_PER_LOOK = 10


class Demo:
    """One run, in a directory of its own."""

    def __init__(self, place: Path, orders: Path, close: str) -> None:
        self._place = place
        self._orders = orders
        self._close = close
        self._journal = Journal(str(place / "journal"))
        self._hang_file = place / "committed"
        #: What both consumers append to.
        self._table = place / "booked"
        self._jobs: list[Submitted] = []
        #: Jobs that only read, still to be started, and those that run.
        self._waiting: list[Callable[[], Submitted]] = []
        self._deriving: list[Submitted] = []

    def run(self) -> bool:
        """Do everything; returns whether the books balance."""
        try:
            say(
                f"two consumers will share real order lines, and close the books of each {self._close}; one of them is killed and "
                f"comes back; the books are balanced: about {LASTS[self._close]} on two idle cores"
            )
            self._clear()
            say("create the journal from conf/queues.toml, and read the file plainly for the books")
            Journal.create(self._journal.path, ROOT / "conf" / "queues.toml")
            books = read_books(self._orders)
            closes = len(set(expected_closes(books, self._close)))
            say(
                f"publish {books.lines:,} lines of {len(books.days)} days, a commit for each, and {closes} closes (jobs/publish.py)"
            )
            # Both consumers must have subscribed before the first barrier goes to all that have.
            self._journal.queue(QUEUE).pause()
            publish = self._submit("publish", "--journal", self._journal.path, "--csv", str(self._orders), "--close", self._close)
            self._follow([publish], ("entered",), books.lines + closes, until=lambda: self._status()["entered"] > 0)
            say(f"meanwhile start two consumers that share {QUEUE} (jobs/consume.py)")
            self._consume(publish, books.lines + closes)
            say("report over the table of both (jobs/report.py)")
            self._waiting.append(partial(self._submit, "report", "--out", str(self._place / "report"), str(self._table)))
            while self._derives():
                time.sleep(POLL_S / 4)
        finally:
            for job in self._jobs:
                job.kill()
            self._stop_coordinator()
        return self._balance(books)

    def _balance(self, books: Books) -> bool:
        lives = Lives()
        lives.follow(self._journal.view("history", queue=QUEUE).to_pylist())
        booked = read_bookmarks(self._table)
        results = {"report over the table": "report", "replay": "replay", "plain delta-spark": "plain"}
        entries = list(reconcile(books, lives, booked, {text: read_revenue(self._place / name) for text, name in results.items()}))
        closed = {name: read_closed(self._place / f"booked-closed-{name}") for name in CONSUMERS}
        entries += reconcile_closes(books, lives, self._close, closed, read_totals(self._table))
        verified = subprocess.run([*SPARKQ, "verify", self._journal.path], check=False, capture_output=True, text=True)
        entries.append(Entry("sparkq verify: exit code", 0, verified.returncode))
        _show(lives, read_shares(self._table), entries)
        say(f"revenue per day and country is in {self._place / 'report'}; {verified.stdout.strip()}")
        return all(entry.holds for entry in entries)

    def _clear(self) -> None:
        if (self._place / "journal").exists():
            self._stop_coordinator()
        shutil.rmtree(self._place, ignore_errors=True)
        (self._place / "logs").mkdir(parents=True)

    def _stop_coordinator(self) -> None:
        subprocess.run([*SPARKQ, "stop", self._journal.path], check=False, capture_output=True)

    def _submit(self, job: str, *arguments: str, log: str | None = None) -> Submitted:
        submitted = Submitted(job, *arguments, log=self._place / "logs" / f"{log or job}.log")
        self._jobs.append(submitted)
        return submitted

    def _consume(self, publish: Submitted, messages: int) -> None:
        victim = self._start(VICTIM, "--hang", str(FATAL_BATCH), str(self._hang_file))
        others = [self._start(name) for name in CONSUMERS if name != VICTIM]
        self._follow([publish], ("entered",), messages)
        while _running([victim, *others]) and self._status()["subscriptions"] < len(CONSUMERS):
            time.sleep(POLL_S)
        say("let them go; each close is a barrier, for both. Beside them replay by the batch reader, and by plain delta-spark")
        self._journal.queue(QUEUE).unpause()
        journal = ("--journal", self._journal.path)
        self._waiting = [
            partial(self._submit, "replay", *journal, "--out", str(self._place / "replay")),
            partial(self._submit, "replay", *journal, "--out", str(self._place / "plain"), "--plain-delta", log="plain"),
        ]
        settled = ("acknowledged", "dead_letters", "barriers_released")
        self._follow([victim, *others], settled, messages, until=self._hang_file.exists)
        victim.kill()
        say(f"killed '{VICTIM}' with SIGKILL: {self._written_unproven():,} lines of its lease stand in the table, and are unproven")
        say(f"start '{VICTIM}' again")
        self._follow([self._start(VICTIM), *others], settled, messages)

    def _start(self, name: str, *more: str) -> Submitted:
        place = ["--table", str(self._table), "--checkpoint", str(self._place / f"{name}-checkpoint")]
        limits = ["--max-backlog", str(MAX_BACKLOG), "--until-empty"]
        return self._submit("consume", "--journal", self._journal.path, "--subscription", name, *place, *limits, *more, log=name)

    def _written_unproven(self) -> int:
        """Count the lines of the victim's unproven lease that stand in the table."""
        leased = self._journal.view("messages", queue=QUEUE, columns=["bookmark", "subscription"])
        mine = BitMap64(row["bookmark"] for row in leased.to_pylist() if row["subscription"] == VICTIM)
        return len(mine & read_bookmarks(self._table))

    def _status(self) -> dict[str, Any]:
        """Look at the queue's figures."""
        return dict(self._journal.view("status", queue=QUEUE).to_pylist()[0])

    def _derives(self) -> bool:
        """Start the next job that only reads when the one before has ended; returns whether any runs."""
        if self._waiting and not _running(self._deriving):
            self._deriving.append(self._waiting.pop(0)())
        return bool(_running(self._deriving))

    def _follow(
        self, jobs: Sequence[Submitted], figures: Sequence[str], total: int, until: Callable[[], bool] | None = None
    ) -> None:
        """Show how far the queue is, until the jobs end or something happens."""
        columns = TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(" + ".join(figures).replace("_", " "), total=total)
            polls = itertools.count()
            while _running(jobs) and not (until is not None and until()):
                time.sleep(POLL_S)
                self._derives()
                if next(polls) % POLLS_PER_LOOK == 0:
                    status = self._status()
                    bar.update(task, completed=sum(status[name] for name in figures))
        if until is not None and not until():
            raise SystemExit("the jobs ended too early")


def _running(jobs: Sequence[Submitted]) -> list[Submitted]:
    # Every job is asked, so that a failed one is noticed at once.
    return [job for job in jobs if job.running]


def _show(lives: Lives, shares: Mapping[str, int], entries: Sequence[Entry]) -> None:
    for name, count in sorted(shares.items()):
        say(f"'{name}' booked {count:,} lines")
    for count, why in lives.redelivered:
        say(f"{count:,} lines were delivered again: {why or 'NOTHING EXPLAINS IT'}")
    show_books(entries)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", type=Path, default=ROOT / "build" / "demo")
    parser.add_argument("--csv", type=Path, default=ORDERS_CSV)
    parser.add_argument("--close", choices=PERIODS, default="month", help="what a barrier closes the books of")
    given = parser.parse_args()
    sys.exit(0 if Demo(given.place.resolve(), given.csv.resolve(), given.close).run() else 1)
