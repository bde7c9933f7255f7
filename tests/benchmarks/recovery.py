"""Recovery: from a killed coordinator to one that serves again, as the next caller experiences it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from spark_queue.journal.store import SNAPSHOTS
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import MANY_MESSAGES, SELECTED_MESSAGES, SELECTIVE, BenchJournal, kill, orders

_HOW = "coordinator killed, then the time until one serves: finding it dead, start, election, fold"


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure with 10 million waiting messages, FIFO, from the control log alone; the budget is 5 s."""
    journal = BenchJournal(bench.place / "journal", messages=MANY_MESSAGES)
    times_s = _times_s(bench, journal, entered=MANY_MESSAGES)
    yield Figure(
        row="recovery-fifo", what="recovery with 10 M waiting messages, FIFO, from the log", value=median(times_s),
        unit="s", budget=5,
        note=f"{spread(times_s)}; {_HOW}",
    )  # fmt: skip


def from_snapshot(bench: Bench) -> Iterator[Figure]:
    """Measure with 10 million waiting messages that a filter let in and a priority ranks; the budget is 1 s."""
    queue = {
        "filter": "get_json_object(value, '$.n') IS NOT NULL",
        "priority": "CAST(get_json_object(value, '$.n') AS BIGINT) % 16",
    }
    journal = BenchJournal(bench.place / "journal", messages=MANY_MESSAGES, queue=queue)
    times_s = _times_s(bench, journal, entered=MANY_MESSAGES, snapshot=True)
    yield Figure(
        row="recovery-snapshot", what="recovery with 10 M waiting messages, filter and 16 priorities, from a snapshot",
        value=median(times_s), unit="s", budget=1, note=f"{spread(times_s)}; {_HOW}",
    )  # fmt: skip


def with_expressions(bench: Bench) -> Iterator[Figure]:
    """Measure with 10 million messages that a JSON filter and a JSON priority select from; the budget is 11 s."""
    journal = BenchJournal(bench.place / "journal", messages=MANY_MESSAGES, queue=SELECTIVE, bodies=orders)
    times_s = _times_s(bench, journal, entered=SELECTED_MESSAGES)
    yield Figure(
        row="recovery-expressions", what="recovery with 10 M messages, JSON filter and JSON priority, from the log",
        value=median(times_s), unit="s", budget=11, note=f"{spread(times_s)}; {SELECTED_MESSAGES:,} of them match; {_HOW}",
    )  # fmt: skip


def _times_s(bench: Bench, journal: BenchJournal, *, entered: int, snapshot: bool = False) -> list[float]:
    """Return how long each caller waited, in seconds, that found the coordinator killed."""
    pong, never = journal.serving(), threading.Event()
    try:
        planner = journal.planner()
        while (status := planner.next(finished=0, limit=1, wait_ms=1_000).status) is None or status.queue_depth < entered:
            pass
        planner.leave()
        while snapshot and not any((Path(journal.store.path) / SNAPSHOTS).glob("*.snapshot")):
            never.wait(0.1)
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
    return times_s
