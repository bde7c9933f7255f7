"""The demo's own bookkeeping: it must balance what balances, and notice what does not, or its verdict is worth nothing."""

from __future__ import annotations

import gzip
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from publish import by_day, read_lines
from reconcile import Books, Lives, read_books, reconcile

HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n"
LINES = """536365,A,LAMP,6,2010-12-01 08:26:00,2.55,17850.0,France
536366,A,LAMP,1,2010-12-01 09:00:00,0.0,17850.0,France
536367,A,LAMP,1,2010-12-01 09:00:00,1.0,,France
C36368,A,LAMP,-1,2010-12-02 09:00:00,2.55,17850.0,France
536369,A,LAMP,-1,2010-12-02 09:00:00,2.55,17850.0,France
536370,A,,3,2010-12-02 09:00:00,0.125,17850.0,Norway
"""


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv.gz"
    path.write_bytes(gzip.compress((HEADER + LINES).encode()))
    return path


@pytest.fixture
def books(orders: Path) -> Books:
    return read_books(orders)


def record(kind: str, *ranges: tuple[int, int], reason: str | None = None, error: str | None = None, **more: Any) -> dict[str, Any]:
    detail = {"v": 1} | ({} if error is None else {"error": error})
    return {
        "record": 7,
        "kind": kind,
        "subscription": "east",
        "lease": 1,
        "ranges": [{"first": first, "until": until} for first, until in ranges],
        "reason": reason,
        "detail": json.dumps(detail),
        **more,
    }


GRANTED = record("granted", (0, 6))
ENDED = [
    record("removed", (1, 2), reason="forced_expire", error="no price"),
    record("removed", (2, 3), reason="forced_expire", error="no customer"),
    record("removed", (4, 5), reason="forced_expire", error="quantity does not fit the invoice"),
    record("removed", (0, 1), (3, 4), (5, 6), reason="acknowledged"),
]


def broken(books: Books, history: list[dict[str, Any]], booked: tuple[int, ...] = (0, 3, 5)) -> list[str]:
    lives = Lives()
    lives.follow(history)
    entries = reconcile(books, lives, {"east": BitMap64(booked)}, {"replay": books.revenue})
    return [entry.what for entry in entries if not entry.holds]


def test_the_rule_is_read_exactly_from_the_file(books: Books) -> None:
    assert books.lines == 6
    assert books.unbookable == {"no price": 1, "no customer": 1, "quantity does not fit the invoice": 1}
    assert books.revenue == {
        (date(2010, 12, 1), "France"): Decimal("15.30"),
        (date(2010, 12, 2), "France"): Decimal("-2.55"),
        (date(2010, 12, 2), "Norway"): Decimal("0.375"),
    }


def test_books_that_balance_have_nothing_wrong(books: Books) -> None:
    assert broken(books, [GRANTED, *ENDED]) == []


def test_an_explained_redelivery_is_counted_and_balances(books: Books) -> None:
    lives = Lives()
    lives.follow([GRANTED, record("returned", (0, 2), reason="lease_expired"), record("granted", (0, 2), lease=2)])
    assert lives.redelivered == [(2, "to 'east' after lease_expired (record 7)")]
    assert broken(books, [GRANTED, record("resumed", (0, 6)), *ENDED]) == []


WRONG: list[tuple[list[dict[str, Any]], tuple[int, ...], str]] = [
    ([GRANTED, *ENDED[:3]], (0, 3, 5), "lines = acknowledged + dead letters"),
    ([GRANTED, *ENDED, record("removed", (0, 1), reason="acknowledged")], (0, 3, 5), "bookmarks with more than one"),
    ([GRANTED, *ENDED, record("removed", (0, 1), reason="max_deliveries")], (0, 3, 5), "bookmarks with more than one"),
    ([GRANTED, record("granted", (0, 1), lease=2), *ENDED], (0, 3, 5), "redeliveries without a reason"),
    ([GRANTED, *ENDED], (0, 3), "acknowledged lines in a table"),
    ([GRANTED, *ENDED], (0, 1, 3, 5), "lines in a table, not acknowledged"),
    ([GRANTED, *ENDED[1:], record("removed", (1, 2), reason="max_deliveries")], (0, 3, 5), "dead letters: any other reason"),
]


@pytest.mark.parametrize(("history", "booked", "what"), WRONG, ids=[what for _, _, what in WRONG])
def test_books_that_do_not_balance_are_noticed(
    books: Books, history: list[dict[str, Any]], booked: tuple[int, ...], what: str
) -> None:
    assert what in broken(books, history, booked)


def test_revenue_that_differs_by_a_cent_is_noticed(books: Books) -> None:
    lives = Lives()
    lives.follow([GRANTED, *ENDED])
    wrong = {**books.revenue, (date(2010, 12, 1), "France"): Decimal("15.31")}
    entries = reconcile(books, lives, {"east": BitMap64([0, 3, 5])}, {"replay": wrong})
    assert [entry.what for entry in entries if not entry.holds] == ["revenue, replay", "  days × countries that differ"]


def test_days_follow_each_other_and_keep_their_place(orders: Path) -> None:
    days = [(first, day.num_rows) for first, day in by_day(read_lines(orders))]
    assert days == [(0, 3), (3, 3)]
