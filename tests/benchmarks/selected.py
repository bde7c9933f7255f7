"""Throughput of a queue with filter and priority, by one stream and by two, against bare Delta with the same `where`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from order_file import ORDERS_CSV, read_lines
from spark_queue import Journal
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import kill_serving
from tests.benchmarks.spark import copied, from_delta, from_queue, session
from tests.benchmarks.throughput import BATCH_FILES, COLUMNS, FILE_LINES, REPEATS, STORED, into

_WHERE = "Quantity > 3"
_PRIORITY = "CASE WHEN Country = 'United Kingdom' THEN 1 ELSE 2 END"


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure one and two streams in turns with bare Delta; lines per second are of lines that match."""
    journal, table, lines = _journal(bench)
    ratios: dict[int, list[float]] = {1: [], 2: []}
    try:
        with session(bench.place) as spark:
            for run in range(bench.runs + 1):
                delta_s = _delta_s(spark, table, bench.place / f"{run}" / "delta", lines)
                for streams, found in ratios.items():
                    place = bench.place / f"{run}" / f"queue-{streams}"
                    found.append(delta_s / _queue_s(spark, journal, f"RUN_{run}_{streams}", place, lines))
    finally:
        kill_serving(journal)
    for streams, found in ratios.items():
        what = (
            f"throughput, {lines:,} lines by filter and priority, {streams} stream(s), against one bare Delta stream with `where`"
        )
        note = f"{spread(found[1:])}; the first of each warms up"
        yield Figure(row=f"selected-{streams}", what=what, value=median(found[1:]), unit="x", note=note)


def _journal(bench: Bench) -> tuple[Journal, str, int]:
    """Publish the lines once; each run has queues of its own over them. Gives a copy for Delta and how many lines match, too."""
    queue = {"underlying_topic": "ORDERS", "filter": _WHERE, "priority": _PRIORITY}
    queues = {f"RUN_{run}_{streams}": queue for run in range(bench.runs + 1) for streams in (1, 2)}
    definitions = {"message_types": {"order_line": {"columns": STORED, "topics": ["ORDERS"]}}, "queues": queues}
    journal = Journal.create(str(bench.place / "journal"), definitions)
    lines = pa.concat_tables([read_lines(ORDERS_CSV)] * REPEATS)
    for first in range(0, lines.num_rows, FILE_LINES):
        journal.publish(lines.slice(first, FILE_LINES), topic="ORDERS")
    table = copied(journal, "order_line", bench.place / "plain")
    # Every queue has to know all of it before the clock runs: entering is measured elsewhere.
    for name in queues:
        journal.queue(name).pause()
        journal.queue(name).unpause()
    return journal, table, sum(1 for quantity in lines.column("Quantity").to_pylist() if quantity is not None and quantity > 3)


def _delta_s(spark: SparkSession, table: str, place: Path, lines: int) -> float:
    def chosen(batch: DataFrame, batch_id: int) -> None:
        into(place / "sink")(batch.where(_WHERE), batch_id)

    stream = from_delta(spark, table, chosen, columns=COLUMNS, files=BATCH_FILES)
    return run_s(spark, [stream], place, [place / "sink"], lines)


def _queue_s(spark: SparkSession, journal: Journal, queue: str, place: Path, lines: int) -> float:
    names = [f"s{number}" for number in range(int(queue[-1]))]
    sinks = [place / name for name in names]
    backlog = BATCH_FILES * FILE_LINES // 2
    streams = [
        from_queue(spark, journal, queue, into(sink), columns=COLUMNS, max_backlog=backlog, subscription=name)
        for name, sink in zip(names, sinks, strict=True)
    ]
    return run_s(spark, streams, place, sinks, lines)


def run_s(spark: SparkSession, streams: Sequence[DataStreamWriter], place: Path, sinks: Sequence[Path], lines: int) -> float:
    """Run streams until nothing is left, and see that they did all the work; returns how long they took."""
    began_s = time.perf_counter()
    queries = [
        stream.option("checkpointLocation", str(place / f"checkpoint-{number}")).trigger(availableNow=True).start()
        for number, stream in enumerate(streams)
    ]
    for query in queries:
        query.awaitTermination()
    took_s = time.perf_counter() - began_s
    # Both did all the work, or the comparison means nothing; a stream that came too late for any has no sink.
    booked = [spark.read.format("delta").load(str(sink)).agg(f.sum("lines")).collect()[0][0] for sink in sinks if sink.exists()]
    assert sum(booked) == lines
    return took_s
