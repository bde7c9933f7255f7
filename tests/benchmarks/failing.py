"""What bad rows cost the good ones: 100,000 rows of which 100 always fail, against the same rows without failures.

Each bad row is found by halves, so it costs as many batches more as its batch can be halved: some seven for a batch of 100,
whatever is done. Whoever runs work of which one row in a thousand fails takes batches of about a tenth of a thousand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_queue import Journal
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import kill_serving
from tests.benchmarks.spark import from_queue, session

ROWS = 100_000
MAX_BACKLOG = 100
MAX_DELIVERIES = 5

#: One in a thousand, somewhere among them.
BAD = frozenset(range(617, ROWS, 1_000))

#: Rows that a query takes before the others, since the first batches of a session are slow.
_WARM_ROWS = 5_000

_DEADLINE_S = 3_600.0


class _Work:
    """What a batch function has done: when each batch began, and which rows it took."""

    def __init__(self, bad: frozenset[int]) -> None:
        self._bad = bad
        self._alone: set[int] = set()
        #: When each batch began, and whether it tried a message alone that had failed alone before.
        self.batches: list[tuple[float, bool]] = []
        self.done: set[int] = set()

    def take(self, batch: DataFrame, _batch_id: int) -> None:
        """Take a batch, unless a bad row is in it."""
        began_s, numbers = time.perf_counter(), [int(row["n"]) for row in batch.toArrow().to_pylist()]
        failing = self._bad.intersection(numbers)
        self.batches.append((began_s, len(numbers) == 1 and numbers[0] in self._alone))
        if failing:
            if len(numbers) == 1:
                self._alone |= failing
            raise ValueError(f"rows {sorted(failing)} are bad")
        self.done.update(numbers)

    def lone_s(self, until_s: float) -> float:
        """Return how long the lone tries took, and the waiting for them, until some moment."""
        ends = [began_s for began_s, _ in self.batches[1:]] + [until_s]
        return sum(end_s - began_s for (began_s, is_lone), end_s in zip(self.batches, ends, strict=True) if is_lone)


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure the clean run, one with a limit, and one without, in turns."""
    limits = {"CLEAN": 0, "LIMITED": MAX_DELIVERIES, "UNLIMITED": 0}
    queues = {
        f"{name}_{run}": {"underlying_topic": "ROWS", "max_deliveries": limit}
        for name, limit in limits.items()
        for run in range(bench.runs)
    }
    queues["WARM"] = {"underlying_topic": "FEW_ROWS", "max_deliveries": 0}
    definitions = {"message_types": {"row": {"columns": "n BIGINT", "topics": ["ROWS", "FEW_ROWS"]}}, "queues": queues}
    journal = Journal.create(str(bench.place / "journal"), definitions)
    for topic, rows in (("FEW_ROWS", _WARM_ROWS), ("ROWS", ROWS)):
        journal.publish(pa.table({"n": pa.array(range(rows), pa.int64())}), topic=topic)
    found: dict[str, list[tuple[float, int, float]]] = {name: [] for name in limits}
    try:
        with session(bench.place) as spark:
            _run(spark, journal, "WARM", bench.place / "warm", bad=frozenset(), messages=_WARM_ROWS)
            for run in range(bench.runs):
                for name, runs in found.items():
                    bad = frozenset[int]() if name == "CLEAN" else BAD
                    runs.append(_run(spark, journal, f"{name}_{run}", bench.place / f"{name}-{run}", bad=bad))
    finally:
        kill_serving(journal)
    for name, what in (
        ("LIMITED", f"until {len(BAD)} rows are dead letters and all others acknowledged, max_deliveries = {MAX_DELIVERIES}"),
        ("UNLIMITED", "until all good rows are acknowledged, no limit"),
    ):
        pairs = list(zip(found[name], found["CLEAN"], strict=True))
        ratios = [(took_s - lone_s) / clean_s for (took_s, _, lone_s), (clean_s, _, _) in pairs]
        times = "; ".join(
            f"{took_s:,.0f} s in {batches:,} batches, of which lone tries {lone_s:,.0f} s; clean {clean_s:,.0f} s in {clean:,}"
            for (took_s, batches, lone_s), (clean_s, clean, _) in pairs
        )
        what = f"{ROWS:,} rows of which {len(BAD)} fail, {MAX_BACKLOG} to a batch: {what}; less lone tries, against none failing"
        note = f"{spread(ratios)}; {times}"
        yield Figure(row=f"failing-{name.lower()}", what=what, value=median(ratios), unit="x", budget=2.0, note=note)


def _run(
    spark: SparkSession, journal: Journal, queue: str, place: Path, *, bad: frozenset[int], messages: int = ROWS
) -> tuple[float, int, float]:
    """Run one query until its work is done; returns seconds, batches, and the seconds of the lone tries."""
    work, pause = _Work(bad), threading.Event()
    good, is_limited = messages - len(bad), queue.startswith("LIMITED")
    rows = from_queue(spark, journal, queue, work.take, columns="n", max_backlog=MAX_BACKLOG, on_error="cancel")
    began_s = time.perf_counter()
    query = rows.option("checkpointLocation", str(place)).start()
    while len(work.done) < good or not _is_over(journal, queue, good, is_limited=is_limited):
        assert query.isActive, query.exception()
        assert time.perf_counter() < began_s + _DEADLINE_S, f"{len(work.done)} rows done"
        pause.wait(0.5)
    took_s = time.perf_counter() - began_s
    batches, lone_s = len(work.batches), work.lone_s(time.perf_counter())
    query.stop()
    status = journal.queue(queue).status()
    assert (status.acknowledged, status.dead_letters) == (good, len(bad) if is_limited else 0)
    return took_s, batches, lone_s


def _is_over(journal: Journal, queue: str, good: int, *, is_limited: bool) -> bool:
    """Return whether the good rows are acknowledged and, with a limit, the bad ones dead letters."""
    status = journal.queue(queue).status()
    return status.acknowledged == good and not (is_limited and status.queue_depth)
