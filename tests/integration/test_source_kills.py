"""Stateful streams while parts of them are killed: the result is the same as without (DESIGN 7; P2 to P6)."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyspark.errors import StreamingQueryException

from spark_queue.source.spark_versions import TELLS_COMMITTED
from tests.integration.source_journal import MakeHome, SourceJournal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MESSAGES = 40
PER_BATCH = 8


def kill_planner(home: SourceJournal) -> None:
    """Kill -9 the process that plans the stream: Spark fails the query."""
    runner = "pyspark.sql.streaming.python_streaming_source_runner"
    planners = [child for child in psutil.Process().children(recursive=True) if runner in child.cmdline()]
    for planner in planners:
        planner.send_signal(signal.SIGKILL)
    psutil.wait_procs(planners, timeout=60)


def kill_coordinator(home: SourceJournal) -> None:
    """Kill -9 the coordinator: the next call starts another, which recovers from the log."""
    hint = json.loads(Path(home.journal.path, "coordinator.json").read_bytes())
    coordinator = psutil.Process(hint["pid"])
    coordinator.send_signal(signal.SIGKILL)
    psutil.wait_procs([coordinator], timeout=60)


def raise_error(home: SourceJournal) -> None:
    """Fail after the sink was written: Spark commits nothing, though the state of the batch is on disk."""
    raise RuntimeError("after the sink")


class Sink:
    """Keeps the newest value of each key, and does something bad to some batches once."""

    def __init__(self, home: SourceJournal, harm: Callable[[SourceJournal], None]) -> None:
        self.values: dict[str, int] = {}
        self._home = home
        self._harm = harm
        self._harmed: set[int] = set()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.values |= {row["item"]: row["n"] for row in batch.collect()}
        if batch_id in (1, 3) and batch_id not in self._harmed:
            self._harmed.add(batch_id)
            self._harm(self._home)


def run_to_the_end(home: SourceJournal, stream: DataFrame, fn: Callable[[DataFrame, int], Any], mode: str) -> int:
    """Start the query again until it ends well; returns how often it failed."""
    writer = stream.writeStream.outputMode(mode).foreachBatch(home.wrapped(fn))
    for failures in range(10):
        try:
            home.run_out(writer)
        except StreamingQueryException:
            continue
        return failures
    raise AssertionError("it never ended well")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("harm", [kill_planner, kill_coordinator, raise_error])
def test_counts_are_exact_when_parts_are_killed_in_fn(make_home: MakeHome, harm: Callable[[SourceJournal], None]) -> None:
    """Every message is counted once in the state, however often its batch ran."""
    home = make_home()
    home.journal.publish([{"id": number, "item": f"item {number % 7}"} for number in range(MESSAGES)], topic="ORDERS")
    sink = Sink(home, harm)
    counted = home.stream(maxBacklog=PER_BATCH).groupBy("item").count().withColumnRenamed("count", "n")
    failures = run_to_the_end(home, counted, sink, "update")
    assert sink.values == Counter(f"item {number % 7}" for number in range(MESSAGES))
    assert home.figures() == (0, 0, MESSAGES)
    # Before 4.2 a run asks its planner nothing behind its one batch.
    assert (failures == 0) == (harm is kill_coordinator or (harm is kill_planner and not TELLS_COMMITTED))


def test_duplicates_are_dropped_exactly_when_the_planner_is_killed(make_home: MakeHome) -> None:
    home = make_home()
    home.journal.publish([{"id": number, "item": f"item {number % 7}"} for number in range(MESSAGES)], topic="ORDERS")
    sink = Sink(home, kill_planner)
    distinct = home.stream(maxBacklog=PER_BATCH).dropDuplicates(["item"]).selectExpr("item", "id AS n")
    run_to_the_end(home, distinct, sink, "append")
    assert sink.values.keys() == {f"item {number}" for number in range(7)}
    assert home.figures() == (0, 0, MESSAGES)
