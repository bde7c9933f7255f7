"""Publish the order lines of a CSV file, one commit for each day of data, and after each month or day that its books be closed.

python jobs/publish.py --journal build/demo/journal

That needs no Spark. Messages are numbered in the order of the file, so a second run publishes nothing twice (R95). Its times are
read as UTC. A close is a message on a topic of its own, in the commit of the day that it ends: nobody sees the day without it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.progress import track

from order_file import ORDERS_CSV, PERIODS, by_day, read_lines, with_closes
from spark_queue import Journal


def main() -> None:
    """Publish every day of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--csv", type=Path, default=ORDERS_CSV)
    parser.add_argument("--close", choices=PERIODS, default="month", help="what a close ends")
    given = parser.parse_args()
    days = list(with_closes(by_day(read_lines(given.csv)), given.close))
    published = duplicates = 0
    with Journal(given.journal).publisher("online-retail") as publisher:
        for first, day in track(days, description="publishing days"):
            done = publisher.publish(day, first_sequence=first + 1)
            published, duplicates = published + done.rows, duplicates + done.duplicates
    print(f"published {published:,} messages of {len(days)} days; {duplicates:,} were there already")


if __name__ == "__main__":
    main()
