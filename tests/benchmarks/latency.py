"""Time from publish to foreachBatch, at one small commit every 300 ms: by the queue, and by bare Delta on the same table."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_queue import Journal
from tests.benchmarks.figure import Bench, Figure, median, percentile, shown, spread
from tests.benchmarks.journals import TOPIC, kill_serving
from tests.benchmarks.spark import BatchFunction, from_delta, from_queue, session

#: Commits of one run, and how many of its first are left out: everything is slow once.
COMMITS = 120
WARM_COMMITS = 20
PAUSE_MS = 300

_DEADLINE_S = 60.0


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure both in turns; the budgets are half the median and 0.6 of the 99th percentile of bare Delta."""
    with session(bench.place) as spark:
        # The first pair only warms the session up.
        pairs = [_pair(spark, bench.place / f"run-{run}", delta_first=bool(run % 2)) for run in range(bench.runs + 1)][1:]
    for share, budget in ((0.5, 0.5), (0.99, 0.6)):
        queue = [percentile(times_ms, share) for times_ms, _ in pairs]
        delta = [percentile(times_ms, share) for _, times_ms in pairs]
        ratios = [one / other for one, other in zip(queue, delta, strict=True)]
        name = f"p{share * 100:.0f}"
        what = f"publish to foreachBatch, a commit every {PAUSE_MS} ms, {name}, against bare Delta"
        note = f"{spread(ratios)}; queue {shown(median(queue))} ms, Delta {shown(median(delta))} ms"
        yield Figure(row=f"latency-{name}", what=what, value=median(ratios), unit="x", budget=budget, note=note)


def _pair(spark: SparkSession, place: Path, *, delta_first: bool) -> tuple[list[float], list[float]]:
    """Return the times of one run by the queue and of one by bare Delta, each on a journal of its own, in milliseconds."""
    turns = [_by_queue, _by_delta]
    times_ms = {}
    for turn in reversed(turns) if delta_first else turns:
        journal = Journal.create(
            str(place / turn.__name__), {"message_types": {"json": {"topics": [TOPIC]}}, "queues": {TOPIC: {}}}
        )
        try:
            times_ms[turn] = turn(spark, journal)
        finally:
            kill_serving(journal)
    return times_ms[_by_queue], times_ms[_by_delta]


def _by_queue(spark: SparkSession, journal: Journal) -> list[float]:
    arrivals = Arrivals()
    return _times_ms(from_queue(spark, journal, TOPIC, arrivals.note, columns="value", max_backlog=100_000), journal, arrivals)


def _by_delta(spark: SparkSession, journal: Journal) -> list[float]:
    arrivals = Arrivals()
    table = journal.store.messages_uri("json")
    return _times_ms(from_delta(spark, table, arrivals.note, columns="value", files=1_000), journal, arrivals)


class Arrivals:
    """Takes micro-batches, and notes for every commit how long after its publish began its batch function did."""

    def __init__(self) -> None:
        self.times_ms: dict[int, float] = {}
        self._changed = threading.Condition()
        self.note: BatchFunction = self._note

    def _note(self, batch: DataFrame, _batch_id: int) -> None:
        began_ms = time.time() * 1e3
        messages = [json.loads(row.value) for row in batch.collect()]
        with self._changed:
            self.times_ms |= {message["commit"]: began_ms - message["sent_ms"] for message in messages}
            self._changed.notify_all()

    def wait_for(self, commits: int) -> None:
        """Wait until so many commits have arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.times_ms) >= commits, _DEADLINE_S)


def _times_ms(stream: DataStreamWriter, journal: Journal, arrivals: Arrivals) -> list[float]:
    query = stream.option("checkpointLocation", f"{journal.path}-checkpoint").start()
    try:
        publish_small_commits(journal)
        arrivals.wait_for(COMMITS)
    finally:
        query.stop()
    return [arrivals.times_ms[commit] for commit in range(WARM_COMMITS, COMMITS)]


def publish_small_commits(journal: Journal, *, commits: int = COMMITS, pause_ms: int = PAUSE_MS) -> None:
    """Publish the commits of one run, by a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.small_commits", journal.path, str(commits), str(pause_ms)]
    subprocess.run(command, check=True, text=True, input=json.dumps(dict(journal.store.storage_options)))
