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
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyroaring import BitMap64

#: Revenue by day and country.
Revenue = dict[tuple[date, str], Decimal]

DEAD = frozenset({"max_deliveries", "max_cancels", "forced_expire"})


@dataclass(slots=True)
class Books:
    """What a plain reading of the file gives; the rule of `orders.py`, written a second time without Spark."""

    lines: int = 0
    unbookable: Counter[str] = field(default_factory=Counter)
    revenue: Revenue = field(default_factory=lambda: defaultdict(Decimal))


def read_books(path: Path) -> Books:
    """Read the file line by line, with exact decimals."""
    books = Books()
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            books.lines += 1
            price, quantity = Decimal(line["UnitPrice"]), int(line["Quantity"])
            if price <= 0:
                books.unbookable["no price"] += 1
            elif not line["CustomerID"]:
                books.unbookable["no customer"] += 1
            elif quantity >= 0 if line["InvoiceNo"].startswith("C") else quantity <= 0:
                books.unbookable["quantity does not fit the invoice"] += 1
            else:
                books.revenue[date.fromisoformat(line["InvoiceDate"][:10]), line["Country"]] += price * quantity
    return books


def read_revenue(path: Path) -> Revenue:
    """Read what a report or replay wrote."""
    return {(row["day"], row["Country"]): row["revenue"] for row in pq.read_table(path).to_pylist()}


def read_bookmarks(path: Path) -> BitMap64:
    """Give the bookmarks in a consumer's table, each of which must be there once."""
    bookmarks = DeltaTable(str(path)).to_pyarrow_table(columns=["bookmark"]).column("bookmark").to_numpy()
    rows = BitMap64(bookmarks)
    if len(rows) != len(bookmarks):
        raise SystemExit(f"{path}: {len(bookmarks) - len(rows)} lines were booked twice in one table")
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
    _returned: dict[str, BitMap64] = field(default_factory=dict)

    def follow(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Go through a queue's history, oldest first."""
        for record in records:
            rows = BitMap64()
            for piece in record["ranges"]:
                rows.add_range(piece["first"], piece["until"])
            if record["kind"] in ("granted", "resumed"):
                self._delivered(record, rows)
            elif record["kind"] == "returned":
                self._returned[record["reason"]] = self._returned.get(record["reason"], BitMap64()) | rows
            elif record["kind"] == "removed":
                self._removed(record, rows)

    def _delivered(self, record: Mapping[str, Any], rows: BitMap64) -> None:
        again = rows & self.delivered
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
            self.errors[_error(record)] += len(rows)
        else:
            self.ended_twice |= rows & self.acknowledged
            self.dead -= rows
            self.acknowledged |= rows


def _error(record: Mapping[str, Any]) -> str:
    return str(json.loads(record["detail"]).get("error", record["reason"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the reconciliation: two figures that must be equal."""

    what: str
    expected: Any
    found: Any

    @property
    def holds(self) -> bool:
        """Whether they are."""
        return bool(self.expected == self.found)


def reconcile(books: Books, lives: Lives, tables: Mapping[str, BitMap64], revenues: Mapping[str, Revenue]) -> Iterator[Entry]:
    """Give every figure that must balance."""
    booked = BitMap64.union(BitMap64(), *tables.values())
    everything = BitMap64()
    everything.add_range(0, books.lines)
    ended = lives.acknowledged | lives.dead
    yield Entry(
        what="lines = acknowledged + dead letters",
        expected=books.lines,
        found=len(lives.acknowledged) + len(lives.dead),
    )
    yield Entry(what="bookmarks with one final outcome", expected=books.lines, found=len((ended & everything) - lives.ended_twice))
    yield Entry(
        what="bookmarks with more than one",
        expected=0,
        found=len((lives.acknowledged & lives.dead) | lives.ended_twice),
    )
    for reason, count in sorted(books.unbookable.items()):
        yield Entry(what=f"dead letters: {reason}", expected=count, found=lives.errors[reason])
    yield Entry(
        what="dead letters: any other reason",
        expected=0,
        found=sum((lives.errors - books.unbookable).values()),
    )
    yield Entry(what="acknowledged lines in a table", expected=len(lives.acknowledged), found=len(lives.acknowledged & booked))
    yield Entry(what="lines in a table, not acknowledged", expected=0, found=len(booked - lives.acknowledged))
    yield Entry(what="redeliveries without a reason", expected=0, found=sum(count for count, why in lives.redelivered if not why))
    total = sum(books.revenue.values(), Decimal())
    for name, revenue in revenues.items():
        yield Entry(what=f"revenue, {name}", expected=_money(total), found=_money(sum(revenue.values(), Decimal())))
        wrong = sum(revenue.get(key) != books.revenue.get(key) for key in {*revenue, *books.revenue})
        yield Entry(what="  days × countries that differ", expected=0, found=wrong)


def _money(amount: Decimal) -> str:
    return f"£{amount:,.2f}"
