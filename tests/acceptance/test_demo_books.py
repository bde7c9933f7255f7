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

from order_file import by_day, read_lines, with_closes
from reconcile import Books, Lives, Totals, expected_closes, read_books, reconcile, reconcile_closes

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


def record(
    kind: str,
    *ranges: tuple[int, int],
    reason: str | None = None,
    error: str | None = None,
    barrier: bool = False,
    **more: Any,
) -> dict[str, Any]:
    detail: dict[str, Any] = {"v": 1} | ({} if error is None else {"error": error}) | ({"barrier": True} if barrier else {})
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
    entries = reconcile(books, lives, BitMap64(booked), {"replay": books.revenue})
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
    ([GRANTED, *ENDED], (0, 3), "acknowledged lines in the table"),
    ([GRANTED, *ENDED], (0, 1, 3, 5), "lines in the table, not acknowledged"),
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
    entries = reconcile(books, lives, BitMap64([0, 3, 5]), {"replay": wrong})
    assert [entry.what for entry in entries if not entry.holds] == ["revenue, replay", "  days × countries that differ"]


def test_days_follow_each_other_and_keep_their_place(orders: Path) -> None:
    days = [(first, day.num_rows) for first, day in by_day(read_lines(orders))]
    assert days == [(0, 3), (3, 3)]


#: What each consumer booked of each of the two days.
TOTALS: Totals = {date(2010, 12, 1): (1, Decimal("15.30")), date(2010, 12, 2): (2, Decimal("-2.175"))}


def released(bookmark: int, *, until: int | None = None) -> dict[str, Any]:
    return record("barrier_released", (bookmark, until or bookmark + 1), subscription=None)


def received(bookmark: int, reason: str | None = None) -> list[dict[str, Any]]:
    granted = record("granted", (bookmark, bookmark + 1), barrier=True)
    return [granted, record("barrier_received", (bookmark, bookmark + 1), reason=reason)]


#: Three lines, the close of their day, three more lines, and a close.
DAY_1 = [record("granted", (0, 3)), record("removed", (0, 3), reason="acknowledged"), released(3)]
DAY_2 = [record("granted", (4, 7)), record("removed", (4, 7), reason="acknowledged"), released(7)]
CLOSED = [*DAY_1, *received(3), *DAY_2, *received(7)]
RELEASED = "closes of a day in their places"
UNSETTLED = "lines in the queue at their close"
LATE = "lines granted after their day closed"
RECEIVED = "closes 'east' received exactly once"


def broken_closes(books: Books, history: list[dict[str, Any]], closed: Totals = TOTALS, period: str = "day") -> list[str]:
    lives = Lives()
    lives.follow(history)
    entries = reconcile_closes(books, lives, period, {"east": closed}, TOTALS)
    return [entry.what for entry in entries if not entry.holds]


def test_closes_that_hold_have_nothing_wrong(books: Books) -> None:
    assert broken_closes(books, CLOSED) == []
    assert broken_closes(books, [*CLOSED[:3], *received(3)[:1], record("resumed", (3, 4), barrier=True), *CLOSED[4:]]) == []


WRONG_CLOSES: list[tuple[list[dict[str, Any]], str]] = [
    ([*CLOSED, record("granted", (1, 2), lease=2)], LATE),
    ([*CLOSED, record("resumed", (6, 7), lease=2)], LATE),
    ([*DAY_1[:1], DAY_1[2], *received(3), DAY_1[1], *DAY_2, *received(7)], UNSETTLED),
    ([*DAY_1, *received(3), *DAY_2[:2]], RELEASED),
    ([*DAY_1, *received(3), *DAY_2[:2], released(6)], "closes anywhere else"),
    ([*DAY_1, *received(3), *DAY_2], RECEIVED),
    ([*CLOSED, *received(3)], RECEIVED),
    ([*DAY_1, *received(3), *DAY_2, *received(7, reason="max_deliveries")], RECEIVED),
]


@pytest.mark.parametrize(("history", "what"), WRONG_CLOSES)
def test_closes_that_do_not_hold_are_noticed(books: Books, history: list[dict[str, Any]], what: str) -> None:
    assert what in broken_closes(books, history)


def test_a_total_that_changed_after_its_close_is_noticed(books: Books) -> None:
    changed = "  closed days that changed later"
    first, second = TOTALS
    assert broken_closes(books, CLOSED, {**TOTALS, first: (0, Decimal("15.30"))}) == [changed]
    assert broken_closes(books, CLOSED, {second: TOTALS[second]}) == ["days with a total from their close", changed]


def test_closes_are_no_lines(books: Books) -> None:
    lives = Lives()
    lives.follow([*CLOSED, *received(7)])
    entries = {entry.what: entry for entry in reconcile(books, lives, BitMap64(), {})}
    assert entries["bookmarks with one final outcome"].found == 6
    assert entries["redeliveries without a reason"].holds


@pytest.mark.parametrize(("period", "expected"), [("day", [3, 7]), ("month", [6])])
def test_a_close_stands_behind_the_last_line_of_its_period_and_takes_a_number(
    orders: Path, books: Books, period: str, expected: list[int]
) -> None:
    published = [
        (first + place, row["topic"])
        for first, day in with_closes(by_day(read_lines(orders)), period)
        for place, row in enumerate(day.to_pylist())
    ]
    assert [number for number, _ in published] == list(range(6 + len(expected)))
    assert [number for number, topic in published if topic == "ORDERS_CLOSE"] == expected
    assert list(expected_closes(books, period)) == expected
