"""A Spark job and a worker in plain Python share one queue of real order lines; one of each is killed, and the books balance.

python jobs/demo_work.py        (or: make demo-work)

The Spark job appends to a Delta table, once for each line. The worker books into a SQLite file, at least once. Each is killed with
SIGKILL when lines of it are written down and not acknowledged, and each is started again. Everything stays in build/demo-work; the
exit code says whether the books balance.
"""

from __future__ import annotations

import sys

from books_shown import say
from order_file import by_day, read_lines
from shared_queue import TOPIC, SharedQueue, given_options

#: The micro-batch of the Spark job (from 0), and the line of the worker, with which each hangs until it is killed.
FATAL_BATCH, FATAL_LINE = 2, 10_000


def run(shared: SharedQueue) -> bool:
    """Do everything; returns whether the books balance."""
    say("a Spark job and a worker in plain Python share real order lines; each is killed once: about a minute")
    shared.create()
    hangs = {name: shared.place / f"{name}-hangs" for name in ("spark", "worker")}
    spark = shared.start_spark("--hang", str(FATAL_BATCH), str(hangs["spark"]))
    shared.wait("Spark starts (jobs/consume.py)", lambda: shared.status()["subscriptions"] == 1)
    worker = shared.start_worker("--hang", str(FATAL_LINE), str(hangs["worker"]))
    shared.wait("the worker starts (jobs/work.py)", lambda: shared.status()["subscriptions"] == 2)
    published = sum(shared.journal.publish(day, topic=TOPIC).rows for _, day in by_day(read_lines(shared.file)))
    say(f"publish {published:,} lines, a commit for each day")
    shared.wait("both have lines written down and not acknowledged", lambda: all(each.exists() for each in hangs.values()))
    for job in (spark, worker):
        job.kill()
    say("both are killed with SIGKILL, and started again; what they had comes back when their leases end")
    shared.start_spark()
    shared.start_worker()
    shared.wait("they finish the rest", lambda: shared.settled() == published)
    return shared.balance()


if __name__ == "__main__":
    with SharedQueue(given_options(__doc__, "demo-work")) as shared_queue:
        balances = run(shared_queue)
    sys.exit(0 if balances else 1)
