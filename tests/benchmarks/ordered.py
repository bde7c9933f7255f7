"""Throughput of a queue with an order key of 200 skewed keys, against the same queue without order, and with Spark's own sort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from order_file import ORDERS_CSV, read_lines
from spark_queue import Journal
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import kill_serving
from tests.benchmarks.selected import run_s
from tests.benchmarks.spark import BatchFunction, from_queue, session
from tests.benchmarks.throughput import BATCH_FILES, COLUMNS, FILE_LINES, REPEATS, STORED, into

#: A quarter of the lines has no customer, and is of one key.
_KEY = "CASE WHEN CustomerID IS NULL THEN 0 ELSE CAST(substring(CustomerID, 1, 5) AS BIGINT) % 200 END"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to consume the lines."""

    name: str
    #: Keys of its queues.
    keys: dict[str, Any] = field(default_factory=dict)
    columns: str = COLUMNS
    #: Whether Spark brings the rows of a key together and in order in each batch.
    sorts: bool = False


PLAIN, ORDERED = Kind(name="PLAIN"), Kind(name="ORDERED", keys={"order_key": _KEY})
SORTED = Kind(name="SORTED", columns=f"{COLUMNS}, CustomerID, bookmark", sorts=True)
KINDS = (PLAIN, ORDERED, SORTED)


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure them in turns; the budget is that order costs a fifth at most."""
    journal, lines = _journal(bench)
    times_s: dict[str, list[float]] = {kind.name: [] for kind in KINDS}
    try:
        with session(bench.place) as spark:
            for run in range(bench.runs + 1):
                for kind in KINDS if run % 2 else reversed(KINDS):
                    place = bench.place / f"{kind.name}_{run}"
                    stream_s = run_s(spark, [_stream(spark, journal, kind, place)], place, [place / "sink"], lines)
                    times_s[kind.name].append(stream_s)
    finally:
        kill_serving(journal)
    against = "against the same queue without order"
    ordered = f"throughput, {lines:,} order lines, order_key of 200 skewed keys, {against}"
    by_spark = f"the same order by Spark's repartition and sort in each batch, {against}"
    for row, kind, what, budget in (("ordered", ORDERED, ordered, 0.8), ("ordered-by-spark", SORTED, by_spark, None)):
        ratios = [plain / other for plain, other in zip(times_s[PLAIN.name], times_s[kind.name], strict=True)][1:]
        rate = lines / median(times_s[kind.name][1:])
        note = f"{spread(ratios)}; {rate:,.0f} lines/s; the first of each warms up"
        yield Figure(row=row, what=what, value=median(ratios), unit="x", budget=budget, at_least=True, note=note)


def _journal(bench: Bench) -> tuple[Journal, int]:
    """Publish the lines once; each run has queues of its own over them."""
    names = {f"{kind.name}_{run}": kind.keys for run in range(bench.runs + 1) for kind in KINDS}
    queues = {name: {"underlying_topic": "ORDERS", **keys} for name, keys in names.items()}
    definitions = {"message_types": {"order_line": {"columns": STORED, "topics": ["ORDERS"]}}, "queues": queues}
    journal = Journal.create(str(bench.place / "journal"), definitions)
    lines = pa.concat_tables([read_lines(ORDERS_CSV)] * REPEATS)
    for first in range(0, lines.num_rows, FILE_LINES):
        journal.publish(lines.slice(first, FILE_LINES), topic="ORDERS")
        # Every queue has to know all of it before the clock runs: entering is measured elsewhere.
        journal.queue("PLAIN_0").pause()
        journal.queue("PLAIN_0").unpause()
    return journal, lines.num_rows


def _stream(spark: SparkSession, journal: Journal, kind: Kind, place: Path) -> Any:
    fn = _sorted(into(place / "sink")) if kind.sorts else into(place / "sink")
    return from_queue(spark, journal, place.name, fn, columns=kind.columns, max_backlog=BATCH_FILES * FILE_LINES)


def _sorted(fn: BatchFunction) -> BatchFunction:
    def in_order(batch: DataFrame, batch_id: int) -> None:
        fn(batch.repartition(f.expr(_KEY)).sortWithinPartitions("bookmark"), batch_id)

    return in_order
