"""Recovery: from a killed coordinator to one that serves again, as the next caller experiences it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import MANY_MESSAGES, BenchJournal, kill


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure with 10 million waiting messages, FIFO, from the control log alone; the budget is 5 s."""
    journal = BenchJournal(bench.place / "journal", messages=MANY_MESSAGES)
    pong = journal.serving()
    try:
        planner = journal.planner()
        assert planner.next(finished=0, limit=1, wait_ms=1_000).queue_depth.depth == MANY_MESSAGES
        planner.leave()
        times_s = []
        for _ in range(bench.runs):
            kill(pong)
            began_s = time.perf_counter()
            again = journal.serving()
            times_s.append(time.perf_counter() - began_s)
            assert again.epoch == pong.epoch + 1
            pong = again
    finally:
        kill(pong)
    yield Figure(
        row="recovery-fifo", what="recovery with 10 M waiting messages, FIFO, from the log", value=median(times_s),
        unit="s", budget=5,
        note=f"{spread(times_s)}; coordinator killed, then the time until one serves: finding it dead, start, election, fold",
    )  # fmt: skip
