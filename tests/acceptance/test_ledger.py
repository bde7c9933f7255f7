"""What the demo's consumers write of a closed day: its whole total, and no close twice, whatever is repeated (R20)."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from ledger import Ledger
from reconcile import read_bookmarks, read_closed, read_shares

FIRST, SECOND = date(2010, 12, 1), date(2010, 12, 2)


def book(place: Path, bookmarks: range, day: date, consumer: str = "east") -> None:
    amounts = pa.array([Decimal("2.5")] * len(bookmarks), pa.decimal128(20, 4))
    columns: dict[str, Any] = {
        "bookmark": list(bookmarks), "day": [day] * len(bookmarks), "amount": amounts, "consumer": [consumer] * len(bookmarks)
    }  # fmt: skip
    write_deltalake(str(place / "booked"), cast(Any, pa.table(columns)), mode="append")


def ledger(place: Path, name: str = "east") -> Ledger:
    return Ledger(str(place / "booked"), str(place / f"closed-{name}"))


def test_a_close_totals_what_all_have_booked_since_the_last_one_and_a_repeated_one_changes_nothing(tmp_path: Path) -> None:
    """The close that a restarted consumer gets again finds its days there."""
    east = ledger(tmp_path)
    book(tmp_path, range(4), FIRST)
    east.close()
    east.close()
    east = ledger(tmp_path)
    east.close()
    book(tmp_path, range(5, 7), SECOND, "west")
    east.close()
    assert read_closed(tmp_path / "closed-east") == {FIRST: (4, Decimal(10)), SECOND: (2, Decimal(5))}
    assert {day["last"] for day in DeltaTable(str(tmp_path / "closed-east")).to_pyarrow_table().to_pylist()} == {3, 6}
    assert (len(read_bookmarks(tmp_path / "booked")), read_shares(tmp_path / "booked")) == (6, {"east": 4, "west": 2})


def test_a_close_before_any_line_writes_nothing(tmp_path: Path) -> None:
    ledger(tmp_path, "west").close()
    assert read_closed(tmp_path / "closed-west") == {}
