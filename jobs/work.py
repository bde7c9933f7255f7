"""Book order lines of a queue in plain Python, without Spark or Java, beside any Spark jobs that share it.

python jobs/work.py --journal build/demo-work/journal --book build/demo-work/mail.sqlite

Lines are booked in a SQLite file, by their bookmark: a line that comes twice stands there once. What cannot be booked becomes a
dead letter.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

from spark_queue import Journal, Message, Receiver

#: Lines that are booked in one transaction.
BATCH = 1_000

_BOOK = "CREATE TABLE IF NOT EXISTS booked (bookmark INTEGER PRIMARY KEY, day TEXT, country TEXT, amount TEXT)"


def main() -> None:
    """Book lines until the queue is empty, or for ever."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--book", type=Path, required=True, help="the SQLite file")
    parser.add_argument("--queue", default="ORDER_WORK")
    parser.add_argument("--hang", nargs=2, metavar=("LINES", "FILE"), help="for drills: hang with lines booked, and make a file")
    given = parser.parse_args()
    queue = Journal(given.journal).queue(given.queue)
    with closing(sqlite3.connect(given.book)) as book, queue.receive(max_backlog=2 * BATCH) as messages:
        _stop_at_signals(messages)
        book.execute(_BOOK)
        lines = 0
        for batch in messages.batches(BATCH):
            entries = [(message, _unbookable(message)) for message in batch.messages]
            with book:
                booked = [_entry(message) for message, error in entries if error is None]
                book.executemany("INSERT OR IGNORE INTO booked VALUES (?, ?, ?, ?)", booked)
            lines += len(booked)
            if given.hang and lines >= int(given.hang[0]):
                Path(given.hang[1]).touch()
                signal.pause()
            for message, error in entries:
                _ = message.acknowledge() if error is None else message.expire(error=error)


def _stop_at_signals(messages: Receiver) -> None:
    """Let a signal end the loop: what is in hand goes back to the queue."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        messages.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _unbookable(line: Message) -> str | None:
    """Say why a line cannot be booked; None when it can: the rule of `orders.py`, in plain Python."""
    if (line["UnitPrice"] or 0) <= 0:
        return "no price"
    if line["CustomerID"] is None:
        return "no customer"
    quantity, is_credit = line["Quantity"], str(line["InvoiceNo"]).startswith("C")
    if quantity is None or not (quantity < 0 if is_credit else quantity > 0):
        return "quantity does not fit the invoice"
    return "no date" if line["InvoiceDate"] is None else None


def _entry(line: Message) -> tuple[Any, ...]:
    # As Spark reads the price: a decimal with four places.
    amount = line["Quantity"] * Decimal(repr(line["UnitPrice"])).quantize(Decimal("0.0001"))
    return line.bookmark, line["InvoiceDate"].date().isoformat(), line["Country"], str(amount)


if __name__ == "__main__":
    main()
