"""What fails on real Spark is told apart: one row that is poison, or a sink that is down (DESIGN 8, 15.12).

Thousands of real order lines, and a consumer as people write it: it books row after row into a sink whose key is the bookmark,
and raises in the middle. With ``on_error="fail"`` its query dies each time, and a supervisor starts it again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from order_file import ORDERS_CSV, read_lines
from tests.acceptance.conftest import MakeJournal
from tests.integration.source_journal import SourceJournal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = (
    "InvoiceNo STRING, StockCode STRING, Description STRING, Quantity BIGINT, "
    "InvoiceDate TIMESTAMP, UnitPrice DOUBLE, CustomerID STRING, Country STRING"
)

#: In the middle of its batch, and of the queue.
LINES, MAX_BACKLOG, POISON = 2_000, 200, 625

#: Some batches behind those that fail while the sink is down.
DOWN_LINES, DOWN_BACKLOG = 200, 20

#: Reached only when a test fails: more deaths than a search for one row takes, and more time than a busy machine needs.
DEATHS, DEADLINE_S = 40, 240.0

#: What a sink has against a row; None when it takes it.
Refusal = Callable[["Row"], str | None]


class Sink:
    """A table of booked lines with the bookmark as its key: a line that comes again is not booked again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(sqlite3.connect(path)) as table:
            table.execute("CREATE TABLE booked (bookmark INTEGER PRIMARY KEY, invoice TEXT, stock_code TEXT, quantity INTEGER)")

    def book(self, rows: Iterable[Row], refusal: Refusal) -> None:
        """Book rows one by one, and raise at the first that is refused; those before it stay booked."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as table:
            table.execute("PRAGMA synchronous = OFF")
            for row in rows:
                reason = refusal(row)
                if reason is not None:
                    raise ValueError(reason)
                line = (row["bookmark"], row["InvoiceNo"], row["StockCode"], row["Quantity"])
                table.execute("INSERT OR IGNORE INTO booked VALUES (?, ?, ?, ?)", line)

    def lines(self) -> list[Any]:
        with closing(sqlite3.connect(self._path)) as table:
            return table.execute("SELECT * FROM booked ORDER BY bookmark").fetchall()


class Shop:
    """A journal with the first lines of the file in queue WORK, and a consumer that books them."""

    def __init__(self, home: SourceJournal, lines: int) -> None:
        self.home = home
        self.queue = home.journal.queue("WORK")
        self.sink = Sink(home.home / "sink.db")
        orders = read_lines(ORDERS_CSV).slice(0, lines)
        home.journal.publish(orders, topic="ORDERS")
        columns = (orders.column(name).to_pylist() for name in ("InvoiceNo", "StockCode", "Quantity"))
        #: What the sink has in the end if nothing is left out.
        self.lines = list(zip(range(lines), *columns, strict=True))
        #: How many rows each batch had.
        self.sizes: list[int] = []

    def start(self, on_error: str, refusal: Refusal, max_backlog: int) -> StreamingQuery:
        def book(batch: DataFrame, _batch_id: int) -> None:
            rows = batch.sort("bookmark").collect()
            self.sizes.append(len(rows))
            self.sink.book(rows, refusal)

        return self.home.start(book, on_error=on_error, options={"maxBacklog": max_backlog})

    def supervise(self, start: Callable[[], StreamingQuery], is_done: Callable[[], bool]) -> list[str]:
        """Run the query until all is done, start it again whenever it has died, and give what it died of."""
        deaths: list[str] = []
        deadline_s, pause = time.monotonic() + DEADLINE_S, threading.Event()
        query = start()
        while not is_done():
            assert time.monotonic() < deadline_s, self.sizes
            if not query.isActive:
                deaths.append(str(query.exception()))
                assert len(deaths) < DEATHS, self.sizes
                query = start()
            pause.wait(0.25)
        query.stop()
        return deaths

    def acknowledged(self) -> Counter[int]:
        """Return how often the control log says of each message that it was acknowledged."""
        records = [record for record in self.home.history("removed") if record["reason"] == "acknowledged"]
        ranges = [piece for record in records for piece in record["ranges"]]
        return Counter(bookmark for piece in ranges for bookmark in range(piece["first"], piece["until"]))


#: Makes a shop with so many lines; its queue has the given keys.
MakeShop = Callable[..., Shop]


@pytest.fixture
def make_shop(make_journal: MakeJournal, spark: SparkSession, tmp_path: Path) -> MakeShop:
    def make(lines: int, **queue: Any) -> Shop:
        known = {
            "message_types": {"order_line": {"columns": COLUMNS, "topics": ["ORDERS"]}},
            "queues": {"WORK": {"underlying_topic": "ORDERS", **queue}},
        }
        return Shop(SourceJournal(make_journal(known), tmp_path, spark), lines)

    return make


@pytest.mark.drawn(1)
@pytest.mark.parametrize("on_error", ["fail", "cancel"])
def test_one_poison_row_among_thousands_is_the_only_dead_letter(make_shop: MakeShop, on_error: str) -> None:
    """R52, R54: all the rest is acknowledged and booked once, and whoever is asked tells the same of it."""
    shop = make_shop(LINES, max_deliveries=2, retry_backoff="100ms")

    def refuse_poison(row: Row) -> str | None:
        return "this line is poison" if row["bookmark"] == POISON else None

    deaths = shop.supervise(lambda: shop.start(on_error, refuse_poison, MAX_BACKLOG), lambda: shop.queue.status().queue_depth == 0)

    assert shop.sink.lines() == [line for line in shop.lines if line[0] != POISON]
    assert shop.acknowledged() == Counter(set(range(LINES)) - {POISON})
    status = shop.queue.status()
    assert (status.entered, status.acknowledged, status.dead_letters, status.alarm) == (LINES, LINES - 1, 1, None)
    (letter,) = shop.home.journal.view("dead_letters", queue="WORK").to_pylist()
    assert (letter["bookmark"], letter["InvoiceNo"]) == shop.lines[POISON][:2]
    assert (letter["reason"], letter["delivery_count"]) == ("max_deliveries", 2)
    assert "this line is poison" in letter["error"]
    told = shop.queue.explain(POISON)
    assert (told.state, told.delivery_count) == ("dead", 2)
    # Two deliveries counted, each alone, and no other: what was given back to search for it did not.
    ends = [event for event in told.events if event.event == "returned" and event.reason != "isolated"]
    assert len(ends) == 2
    assert all(event.error is not None and "this line is poison" in event.error for event in ends)
    assert told.events[-1].reason == "max_deliveries"
    # It came down to one row, and up again.
    assert MAX_BACKLOG in shop.sizes[: shop.sizes.index(1)]
    assert MAX_BACKLOG in shop.sizes[shop.sizes.index(1) :]
    assert bool(deaths) == (on_error == "fail")
    assert all("this line is poison" in death for death in deaths)


@pytest.mark.parametrize("on_error", [pytest.param("fail", marks=pytest.mark.slow), "cancel"])
def test_a_sink_that_is_down_makes_no_dead_letter_and_all_is_booked_when_it_is_back(
    make_shop: MakeShop, tmp_path: Path, on_error: str
) -> None:
    """R54: while every row fails, no row is to blame, though each may be delivered once only."""
    shop = make_shop(DOWN_LINES, max_deliveries=1, retry_backoff="100ms")
    is_up = tmp_path / "the sink is up"
    #: How many batches had run when the alarm was seen.
    alarmed: list[int] = []

    def refuse_all(_row: Row) -> str | None:
        return None if is_up.exists() else "the sink is down"

    def is_done() -> bool:
        status = shop.queue.status()
        if not is_up.exists():
            assert (status.acknowledged, status.dead_letters, status.queue_depth) == (0, 0, DOWN_LINES)
            if status.alarm is not None:
                assert status.paused
                assert "the sink is down" in status.alarm
                alarmed.append(len(shop.sizes))
            # It tried again after the alarm, and that failed, too.
            if alarmed and len([size for size in shop.sizes[alarmed[0] :] if size]) > 1:
                is_up.touch()
        return status.queue_depth == 0

    shop.supervise(lambda: shop.start(on_error, refuse_all, DOWN_BACKLOG), is_done)

    assert shop.sink.lines() == shop.lines
    assert shop.acknowledged() == Counter(range(DOWN_LINES))
    status = shop.queue.status()
    assert (status.acknowledged, status.dead_letters, status.alarm, status.paused) == (DOWN_LINES, 0, None, False)
    assert [record["reason"] for record in shop.home.history("paused")] == ["alarm"]
    assert [record["reason"] for record in shop.home.history("unpaused")] == ["probe"]
