"""One queue on two sites, on real order lines: shared, taken over, and served while one site is lost; then balance the books.

python jobs/demo_replication.py        (or: make demo-replication)

Frankfurt and Virginia are two journals, each with its own coordinator and its own Spark consumer. Each is given half of the lines.
First both consume. Then Virginia's consumer stops, and its lines are transferred to Frankfurt. Then Virginia's whole journal
disappears, and Frankfurt claims its lines. Virginia comes back, and both say the same. Everything stays in
build/demo-replication; the exit code says whether the books balance.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from books_shown import console, say, show_books
from order_file import ORDERS_CSV, by_day, first_lines, read_lines
from reconcile import Entry, read_books
from spark_queue import Journal
from submitted import ROOT, SPARKQ, Submitted

QUEUE, TOPIC = "ORDER_WORK", "ORDERS"
SITES = ("frankfurt", "virginia")
LINES = 45_000
POLL_S = 1.0

#: How long a site is silent before it counts as lost, in this demo.
UNREACHABLE_AFTER = "15s"

#: A line everywhere: the instance that it was published to, and its bookmark there.
Id = tuple[str, int]


class Site:
    """One journal, its consumer, and what that wrote."""

    def __init__(self, place: Path, name: str) -> None:
        self.name = name
        self.home = place / name
        self.journal = Journal(str(self.home))
        self.table = place / f"{name}-booked"
        self._place = place
        self.consumer: Submitted | None = None

    def create(self, other: str) -> None:
        """Make the journal, which pulls the queue from the other one."""
        definitions = tomllib.loads((ROOT / "conf" / "queues.toml").read_text(encoding="utf-8"))
        queues = definitions["queues"]
        # The closes of books are the other demo's.
        queues[QUEUE] = {"underlying_topic": TOPIC, "lease_period": "20s", "max_deliveries": 5, "dead_letter_queue": "ORDER_FAILED"}
        definitions["journal"]["instance"] = self.name
        definitions["peers"] = {other: {"journal": str(self._place / other), "topics": [TOPIC], "queues": list(queues)}}
        definitions["replication"] = {"unreachable_after": UNREACHABLE_AFTER}
        Journal.create(self.journal.path, definitions)

    def publish(self, days: list[pa.Table]) -> int:
        """Publish days of lines; returns how many lines."""
        return sum(self.journal.publish(day, topic=TOPIC).rows for day in days)

    def start_consumer(self) -> None:
        """Start the Spark job that books lines of this site's queue."""
        where = ["--table", str(self.table), "--checkpoint", str(self._place / f"{self.name}-checkpoint")]
        arguments = ["--journal", self.journal.path, "--subscription", self.name, "--max-backlog", "20000", *where]
        self.consumer = Submitted("consume", *arguments, log=self._place / "logs" / f"{self.name}.log")

    def stop_consumer(self) -> None:
        """Kill the Spark job."""
        if self.consumer is not None:
            self.consumer.kill()

    def status(self) -> dict[str, Any]:
        """Look at the queue's figures."""
        return dict(self.journal.view("status", queue=QUEUE).to_pylist()[0])

    def settled(self) -> int:
        """Count the lines that have ended, wherever they did."""
        status = self.status()
        return int(status["acknowledged"]) + int(status["dead_letters"])

    def booked(self) -> Iterator[tuple[Id, Decimal]]:
        """Yield each booked line with its amount."""
        rows = DeltaTable(str(self.table)).to_pyarrow_table(columns=["origin", "origin_bookmark", "amount"]).to_pylist()
        yield from (((row["origin"], row["origin_bookmark"]), row["amount"]) for row in rows)

    def dead(self) -> set[Id]:
        """Return the lines that are dead letters."""
        rows = self.journal.view("dead_letters", queue=QUEUE, columns=["origin", "origin_bookmark"]).to_pylist()
        return {(row["origin"], row["origin_bookmark"]) for row in rows}


class SitesDemo:
    """One run, in a directory of its own."""

    def __init__(self, place: Path, orders: Path, lines: int) -> None:
        self._place = place
        self._orders = orders
        self._lines = lines
        self._sites = [Site(place, name) for name in SITES]
        self._published = 0

    def run(self) -> bool:
        """Do everything; returns whether the books balance."""
        frankfurt, virginia = self._sites
        self._clear()
        try:
            say("two sites share a queue of real order lines; one is lost and comes back: about 2 minutes on two idle cores")
            file = first_lines(self._orders, self._lines, self._place)
            days = [day for _, day in by_day(read_lines(file))]
            thirds = [days[: len(days) // 3], days[len(days) // 3 : 2 * len(days) // 3], days[2 * len(days) // 3 :]]
            for site, other in zip(self._sites, reversed(SITES), strict=True):
                site.create(other)
                site.start_consumer()
            self._publish(thirds[0])
            self._follow("both sites consume what they own", self._settled_everywhere)
            virginia.stop_consumer()
            say("Virginia's consumer is killed; the lines that it owns wait")
            self._publish(thirds[1])
            self._follow("Frankfurt asks for Virginia's lines, which Virginia transfers", self._settled_everywhere)
            self._publish(thirds[2], to=[virginia])
            self._follow("Frankfurt has pulled them", self._pulled)
            lost = self._place / "lost"
            virginia.home.rename(lost)
            say("Virginia's journal is gone: the directory was moved away. Frankfurt may claim what it cannot give")
            frankfurt.journal.queue(QUEUE).proxied_transfer(on=True)
            self._follow("Frankfurt claims and books Virginia's lines", lambda: frankfurt.settled() == self._published)
            lost.rename(virginia.home)
            say("Virginia is back; its coordinator starts, and hears what was claimed")
            frankfurt.journal.queue(QUEUE).proxied_transfer(on=False)
            virginia.start_consumer()
            self._follow("both say the same", self._settled_everywhere)
            return self._balance(file)
        finally:
            for site in self._sites:
                site.stop_consumer()
                subprocess.run([*SPARKQ, "stop", site.journal.path], check=False, capture_output=True)

    def _clear(self) -> None:
        for site in self._sites:
            if site.home.exists():
                subprocess.run([*SPARKQ, "stop", site.journal.path], check=False, capture_output=True)
        shutil.rmtree(self._place, ignore_errors=True)
        (self._place / "logs").mkdir(parents=True)

    def _publish(self, days: list[pa.Table], to: list[Site] | None = None) -> None:
        sites = self._sites if to is None else to
        # Each site has its share of every day.
        shares = [[_share(day, number, len(sites)) for day in days] for number in range(len(sites))]
        counts = {site.name: site.publish(share) for site, share in zip(sites, shares, strict=True)}
        self._published += sum(counts.values())
        say("publish " + ", ".join(f"{count:,} lines to {name}" for name, count in counts.items()))

    def _settled_everywhere(self) -> bool:
        return all(site.settled() == self._published for site in self._sites)

    def _pulled(self) -> bool:
        return all(site.status()["entered"] == self._published for site in self._sites)

    def _follow(self, what: str, is_done: Callable[[], bool]) -> None:
        with console.status(what):
            while not is_done():
                for site in self._sites:
                    if site.consumer is not None and site.consumer.killed is False and not site.consumer.running:
                        raise SystemExit(f"the consumer of {site.name} ended too early")
                time.sleep(POLL_S)
        say(f"done: {what}")

    def _balance(self, file: Path) -> bool:
        books = read_books(file)
        booked = {site.name: dict(site.booked()) for site in self._sites}
        dead = {site.name: site.dead() for site in self._sites}
        times = Counter(each for of_site in booked.values() for each in of_site)
        amount = sum({**booked[SITES[0]], **booked[SITES[1]]}.values(), Decimal())
        entries = [
            Entry(what="lines published", expected=books.lines, found=self._published),
            Entry(what="lines booked, anywhere", expected=books.lines - books.unbookable.total(), found=len(times)),
            Entry(what="lines booked more than once", expected=0, found=sum(count > 1 for count in times.values())),
            Entry(what="dead letters, as Frankfurt says", expected=books.unbookable.total(), found=len(dead[SITES[0]])),
            Entry(what="dead letters that Virginia says otherwise", expected=0, found=len(dead[SITES[0]] ^ dead[SITES[1]])),
            Entry(what="revenue", expected=f"{sum(books.revenue.values()):.2f}", found=f"{amount:.2f}"),
        ]
        verified = [subprocess.Popen([*SPARKQ, "verify", site.journal.path], stdout=subprocess.DEVNULL) for site in self._sites]
        for site, process in zip(self._sites, verified, strict=True):
            entries.append(Entry(what=f"sparkq verify, {site.name}: exit code", expected=0, found=process.wait()))
        for site in self._sites:
            status = site.status()
            say(
                f"{site.name} booked {len(booked[site.name]):,} lines; {status['transferred_in']:,} came by transfer, "
                f"{status['transferred_out']:,} went, {status['proxied_transfer']:,} were claimed"
            )
        return show_books(entries)


def _share(day: pa.Table, number: int, count: int) -> pa.Table:
    """Return one of the equal shares of a day's lines."""
    first, until = number * day.num_rows // count, (number + 1) * day.num_rows // count
    return day.slice(first, until - first)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", type=Path, default=ROOT / "build" / "demo-replication")
    parser.add_argument("--csv", type=Path, default=ORDERS_CSV)
    parser.add_argument("--lines", type=int, default=LINES, help="how many lines of the file")
    given = parser.parse_args()
    sys.exit(0 if SitesDemo(given.place.resolve(), given.csv.resolve(), given.lines).run() else 1)
