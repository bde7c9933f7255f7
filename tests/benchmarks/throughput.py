"""Throughput on real Spark: 2.1 million real order lines, aggregated into a Delta table, by the queue and by bare Delta."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from order_file import ORDERS_CSV, read_lines
from spark_queue import Journal
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import kill_serving
from tests.benchmarks.spark import BatchFunction, copied, from_delta, from_queue, session

#: The real file holds 541,909 lines.
REPEATS = 4
FILE_LINES = 50_000
BATCH_FILES = 4

COLUMNS = "InvoiceDate, Country, Quantity, UnitPrice"

STORED = (
    "InvoiceNo STRING, StockCode STRING, Description STRING, Quantity BIGINT, InvoiceDate TIMESTAMP, UnitPrice DOUBLE, "
    "CustomerID STRING, Country STRING"
)

#: Lines per second of queue and of Delta, for each run.
Pairs = list[tuple[float, float]]


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure both in turns; the budget is that the queue is not slower."""
    journal, lines = _journal(bench.place, bench.runs)
    table = copied(journal, "order_line", bench.place / "plain")
    try:
        with session(bench.place) as spark:
            whole, steady = _rates(spark, journal, table, bench, lines)
    finally:
        kill_serving(journal)
    for row, what, budget, pairs in (
        ("throughput", f"throughput, {lines:,} order lines, aggregate to a Delta sink, against bare Delta", 1.0, whole),
        ("throughput-steady", "the same without the start of the query and its first batch", None, steady),
    ):
        ratios = [queue / delta for queue, delta in pairs]
        queue_rate, delta_rate = median(queue for queue, _ in pairs), median(delta for _, delta in pairs)
        note = f"{spread(ratios)}; queue {queue_rate:,.0f}, Delta {delta_rate:,.0f} lines/s"
        yield Figure(row=row, what=what, value=median(ratios), unit="x", budget=budget, at_least=True, note=note)


def _journal(place: Path, runs: int) -> tuple[Journal, int]:
    """Publish the lines once; each run has a queue of its own over them, and one more warms up."""
    queues = {f"RUN_{run}": {"underlying_topic": "ORDERS"} for run in range(runs + 1)}
    definitions = {"message_types": {"order_line": {"columns": STORED, "topics": ["ORDERS"]}}, "queues": queues}
    journal = Journal.create(str(place / "journal"), definitions)
    lines = pa.concat_tables([read_lines(ORDERS_CSV)] * REPEATS)
    with journal.publisher("bench") as publisher:
        for first in range(0, lines.num_rows, FILE_LINES):
            publisher.publish(lines.slice(first, FILE_LINES), topic="ORDERS")
    return journal, lines.num_rows


def _rates(spark: SparkSession, journal: Journal, table: str, bench: Bench, lines: int) -> tuple[Pairs, Pairs]:
    """Return lines per second of queue and of Delta, whole and steady; the first run only warms up."""
    whole: Pairs = []
    steady: Pairs = []
    for run in range(bench.runs + 1):
        place = bench.place / f"run-{run}"
        sinks = {name: place / name / "sink" for name in ("queue", "delta")}
        backlog = BATCH_FILES * FILE_LINES
        queue = from_queue(spark, journal, f"RUN_{run}", into(sinks["queue"]), columns=COLUMNS, max_backlog=backlog)
        delta = from_delta(spark, table, into(sinks["delta"]), columns=COLUMNS, files=BATCH_FILES)
        turns = [("queue", queue), ("delta", delta)]
        rates = {name: _run(stream, place / name, lines) for name, stream in (turns if run % 2 else reversed(turns))}
        _check_same(spark, sinks["queue"], sinks["delta"], lines)
        whole.append((rates["queue"][0], rates["delta"][0]))
        steady.append((rates["queue"][1], rates["delta"][1]))
    return whole[1:], steady[1:]


def into(sink: Path) -> BatchFunction:
    def aggregate(batch: DataFrame, batch_id: int) -> None:
        revenue = f.sum(f.col("Quantity") * f.col("UnitPrice")).alias("revenue")
        days = batch.groupBy(f.to_date("InvoiceDate").alias("day"), "Country").agg(revenue, f.count("*").alias("lines"))
        days.withColumn("batch", f.lit(batch_id)).write.format("delta").mode("append").save(str(sink))

    return aggregate


def _run(stream: DataStreamWriter, place: Path, lines: int) -> tuple[float, float]:
    began_s = time.perf_counter()
    query = stream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    whole_s = time.perf_counter() - began_s
    return lines / whole_s, steady_rate(query)


def steady_rate(query: StreamingQuery) -> float:
    """Return rows per second of a query without its start and its first batch."""
    batches = [each for each in query.recentProgress if each.numInputRows][1:]
    return sum(each.numInputRows for each in batches) / sum(each.durationMs["triggerExecution"] for each in batches) * 1e3


def _check_same(spark: SparkSession, queue: Path, delta: Path, lines: int) -> None:
    """Both did all the work, or the comparison means nothing."""
    for sink in (queue, delta):
        assert spark.read.format("delta").load(str(sink)).agg(f.sum("lines")).first()[0] == lines  # type: ignore[index]  # An aggregate has a row.
