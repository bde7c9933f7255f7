"""Balancing the demo's books: what the file says, what the journal recorded, what the consumers wrote."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyroaring import BitMap64

from order_file import PERIODS

#: Revenue by day and country.
Revenue = dict[tuple[date, str], Decimal]

#: Lines and amount by day.
Totals = dict[date, tuple[int, Decimal]]

DEAD = frozenset({"max_deliveries", "max_cancels", "forced_expire"})


@dataclass(slots=True)
class Books:
    """What a plain reading of the file gives; the rule of `orders.py`, written a second time without Spark."""

    lines: int = 0
    #: Lines of each day, in the order of the file.
    days: Counter[date] = field(default_factory=Counter)
    unbookable: Counter[str] = field(default_factory=Counter)
    revenue: Revenue = field(default_factory=lambda: defaultdict(Decimal))


def read_books(path: Path) -> Books:
    """Read the file line by line, with exact decimals."""
    books = Books()
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            day = date.fromisoformat(line["InvoiceDate"][:10])
            books.lines += 1
            books.days[day] += 1
            price, quantity = Decimal(line["UnitPrice"]), int(line["Quantity"])
            if price <= 0:
                books.unbookable["no price"] += 1
            elif not line["CustomerID"]:
                books.unbookable["no customer"] += 1
            elif quantity >= 0 if line["InvoiceNo"].startswith("C") else quantity <= 0:
                books.unbookable["quantity does not fit the invoice"] += 1
            else:
                books.revenue[day, line["Country"]] += price * quantity
    return books


def read_revenue(path: Path) -> Revenue:
    """Read what a report or replay wrote."""
    return {(row["day"], row["Country"]): row["revenue"] for row in pq.read_table(path).to_pylist()}


def read_shares(path: Path) -> Counter[str]:
    """Count the lines that each consumer booked."""
    return Counter(str(row["consumer"]) for row in DeltaTable(str(path)).to_pyarrow_table(columns=["consumer"]).to_pylist())


def read_totals(path: Path) -> Totals:
    """Return lines and amount of each day that the table holds, now that everything is over."""
    totals: Totals = defaultdict(lambda: (0, Decimal()))
    for row in DeltaTable(str(path)).to_pyarrow_table(columns=["day", "amount"]).to_pylist():
        lines, amount = totals[row["day"]]
        totals[row["day"]] = lines + 1, amount + row["amount"]
    return totals


def read_closed(path: Path) -> Totals:
    """Return what a consumer wrote of each day when it closed it."""
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return {row["day"]: (row["lines"], row["amount"]) for row in rows}


def read_bookmarks(path: Path) -> BitMap64:
    """Return the bookmarks in the table, each of which must be there once."""
    bookmarks = DeltaTable(str(path)).to_pyarrow_table(columns=["bookmark"]).column("bookmark").to_numpy()
    rows = BitMap64(bookmarks)
    if len(rows) != len(bookmarks):
        raise SystemExit(f"{path}: {len(bookmarks) - len(rows)} lines stand there twice")
    return rows


@dataclass(slots=True)
class Lives:
    """What the control log says of every message of a queue."""

    delivered: BitMap64 = field(default_factory=BitMap64)
    acknowledged: BitMap64 = field(default_factory=BitMap64)
    dead: BitMap64 = field(default_factory=BitMap64)
    #: Messages that ended a second time, which must not be.
    ended_twice: BitMap64 = field(default_factory=BitMap64)
    #: Messages delivered again, with the record that explains it; an unexplained one has an empty text.
    redelivered: list[tuple[int, str]] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    #: Barriers that were released, and how often each subscription received each.
    closes: BitMap64 = field(default_factory=BitMap64)
    received: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    #: Lines before a barrier that were still in the queue when it was released, and that were granted later: there must be none.
    unsettled: BitMap64 = field(default_factory=BitMap64)
    late: BitMap64 = field(default_factory=BitMap64)
    _returned: dict[str, BitMap64] = field(default_factory=dict)

    def follow(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Go through a queue's history, oldest first."""
        for record in records:
            rows = BitMap64()
            for piece in record["ranges"]:
                rows.add_range(piece["first"], piece["until"])
            match record["kind"]:
                case "granted" | "resumed" if not json.loads(record["detail"]).get("barrier"):
                    self._delivered(record, rows)
                case "returned":
                    self._returned[record["reason"]] = self._returned.get(record["reason"], BitMap64()) | rows
                case "removed":
                    self._removed(record, rows)
                case "barrier_released":
                    self.closes |= rows
                    self.unsettled |= self._closed() - self.acknowledged - self.dead
                case "barrier_received" if record["reason"] is None:
                    self.received[record["subscription"]].update(rows)

    def _closed(self) -> BitMap64:
        """Return the lines before the newest barrier that was released."""
        lines = BitMap64()
        lines.add_range(0, max(self.closes, default=0))
        return lines - self.closes

    def _delivered(self, record: Mapping[str, Any], rows: BitMap64) -> None:
        again = rows & self.delivered
        self.late |= rows & self._closed()
        self.delivered |= rows
        who, number = record["subscription"], record["record"]
        if record["kind"] == "resumed" and again:
            why = f"'{who}' restarted before the proof of lease {record['lease']} and took it up again (record {number})"
            self.redelivered.append((len(again), why))
            return
        for reason, returned in self._returned.items():
            if again & returned:
                self.redelivered.append((len(again & returned), f"to '{who}' after {reason} (record {number})"))
                again -= returned
        if again:
            self.redelivered.append((len(again), ""))

    def _removed(self, record: Mapping[str, Any], rows: BitMap64) -> None:
        if record["reason"] in DEAD:
            self.ended_twice |= rows & (self.acknowledged | self.dead)
            self.dead |= rows
            self.errors[str(json.loads(record["detail"]).get("error", record["reason"]))] += len(rows)
        else:
            self.ended_twice |= rows & self.acknowledged
            self.dead -= rows
            self.acknowledged |= rows


class Entry(NamedTuple):
    """One line of the reconciliation: two figures that must be equal."""

    what: str
    expected: Any
    found: Any

    @property
    def holds(self) -> bool:
        """Whether they are."""
        return bool(self.expected == self.found)


def reconcile(books: Books, lives: Lives, booked: BitMap64, revenues: Mapping[str, Revenue]) -> Iterator[Entry]:
    """Yield every figure of the lines that must balance."""
    everything = BitMap64()
    everything.add_range(0, books.lines + len(lives.closes))
    ended = lives.acknowledged | lives.dead
    yield Entry("lines = acknowledged + dead letters", books.lines, len(lives.acknowledged) + len(lives.dead))
    yield Entry("bookmarks with one final outcome", books.lines, len((ended & everything) - lives.ended_twice))
    yield Entry("bookmarks with more than one", 0, len((lives.acknowledged & lives.dead) | lives.ended_twice))
    for reason, count in sorted(books.unbookable.items()):
        yield Entry(f"dead letters: {reason}", count, lives.errors[reason])
    yield Entry("dead letters: any other reason", 0, sum((lives.errors - books.unbookable).values()))
    yield Entry("acknowledged lines in the table", len(lives.acknowledged), len(lives.acknowledged & booked))
    yield Entry("lines in the table, not acknowledged", 0, len(booked - lives.acknowledged))
    yield Entry("redeliveries without a reason", 0, sum(count for count, why in lives.redelivered if not why))
    total = sum(books.revenue.values(), Decimal())
    for name, revenue in revenues.items():
        yield Entry(f"revenue, {name}", _money(total), _money(sum(revenue.values(), Decimal())))
        wrong = sum(revenue.get(key) != books.revenue.get(key) for key in {*revenue, *books.revenue})
        yield Entry("  days × countries that differ", 0, wrong)


def reconcile_closes(books: Books, lives: Lives, period: str, closed: Mapping[str, Totals], totals: Totals) -> Iterator[Entry]:
    """Yield every figure of the closes that must balance.

    Parameters
    ----------
    period
        What each close ends: a key of `PERIODS`.
    closed
        Each consumer's days as it closed them.
    totals
        The days as the table holds them at the end.
    """
    closes = BitMap64(expected_closes(books, period))
    yield Entry(f"closes of a {period} in their places", len(closes), len(closes & lives.closes))
    yield Entry("closes anywhere else", 0, len(lives.closes - closes))
    yield Entry("lines in the queue at their close", 0, len(lives.unsettled))
    yield Entry(f"lines granted after their {period} closed", 0, len(lives.late))
    days = {day for day, _ in books.revenue}
    totalled = {day for each in closed.values() for day in each}
    yield Entry("days with a total from their close", len(days), len(totalled))
    for name in closed:
        once = [bookmark for bookmark, times in lives.received[name].items() if times == 1]
        yield Entry(f"closes '{name}' received exactly once", len(closes), len(closes & BitMap64(once)))
        changed = sum(closed[name].get(day) != totals.get(day) for day in {*closed[name], *totals})
        yield Entry("  closed days that changed later", 0, changed)


def expected_closes(books: Books, period: str) -> Iterator[int]:
    """Yield the bookmark of each close: behind the lines of its period and the closes before it."""
    ends = {f"{day:{PERIODS[period]}}": lines for day, lines in zip(books.days, accumulate(books.days.values()), strict=True)}
    for closes_before, lines in enumerate(ends.values()):
        yield lines + closes_before


def _money(amount: Decimal) -> str:
    return f"£{amount:,.2f}"
