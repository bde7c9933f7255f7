"""What the demo's consumers write: nothing twice, and no close twice, whatever is repeated (R20)."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from ledger import LINES, MOST_FILES, Ledger
from reconcile import read_bookmarks, read_closed

FIRST, SECOND = date(2010, 12, 1), date(2010, 12, 2)


def lines(bookmarks: range, day: date, error: str | None = None) -> pa.Table:
    same = {"InvoiceNo": "536365", "Country": "France", "day": day, "amount": Decimal("2.5"), "error": error}
    schema = LINES.append(pa.field("error", pa.string()))
    return pa.Table.from_pylist([{"bookmark": bookmark, **same} for bookmark in bookmarks], schema=schema)


def test_lines_that_come_again_are_written_once(tmp_path: Path) -> None:
    path = str(tmp_path / "east")
    ledger = Ledger(path)
    ledger.book(lines(range(5), FIRST))
    ledger.book(lines(range(5), FIRST))
    ledger = Ledger(path)
    ledger.book(lines(range(3, 8), FIRST))
    ledger.book(lines(range(6, 9), FIRST))
    assert list(read_bookmarks(tmp_path / "east")) == list(range(9))


def test_lines_that_cannot_be_booked_are_given_back_with_the_reason(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "east"))
    found = ledger.book(pa.concat_tables([lines(range(2), FIRST), lines(range(2, 4), FIRST, "no price")]))
    assert found.to_pylist() == [{"bookmark": 2, "error": "no price"}, {"bookmark": 3, "error": "no price"}]
    assert list(read_bookmarks(tmp_path / "east")) == [0, 1]


def test_a_close_totals_what_came_since_the_last_one_and_a_repeated_one_changes_nothing(tmp_path: Path) -> None:
    """The close that a restarted consumer gets again finds its days there."""
    path = str(tmp_path / "east")
    ledger = Ledger(path)
    ledger.book(lines(range(4), FIRST))
    ledger.close()
    ledger.close()
    ledger = Ledger(path)
    ledger.close()
    ledger.book(lines(range(5, 7), SECOND))
    ledger.close()
    assert read_closed(tmp_path / "east-closed") == {FIRST: (4, Decimal(10)), SECOND: (2, Decimal(5))}
    assert {day["last"] for day in DeltaTable(f"{path}-closed").to_pyarrow_table().to_pylist()} == {3, 6}


def test_small_files_are_made_one_and_say_the_same(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "east"))
    for day in range(MOST_FILES + 2):
        ledger.book(lines(range(2 * day, 2 * day + 1), date(2011, 1, 1) + timedelta(day)))
        ledger.close()
    assert len(DeltaTable(str(tmp_path / "east")).file_uris()) == 3
    assert list(read_bookmarks(tmp_path / "east")) == list(range(0, 2 * MOST_FILES + 4, 2))
    assert set(read_closed(tmp_path / "east-closed").values()) == {(1, Decimal("2.5"))}


def test_a_close_of_a_consumer_without_lines_writes_nothing(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "west"))
    ledger.book(lines(range(0), FIRST))
    ledger.close()
    assert read_closed(tmp_path / "west-closed") == {}
