"""Rows into a Delta table: by the commit that acknowledges them, and by Spark's append behind the bare Delta source."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from order_file import ORDERS_CSV, read_lines
from spark_queue import Journal
from spark_queue.sinks.table import SinkTable
from tests.benchmarks.figure import Bench, Figure, median, percentile, shown, spread
from tests.benchmarks.journals import TOPIC, kill_serving
from tests.benchmarks.latency import COMMITS, WARM_COMMITS, publish_small_commits
from tests.benchmarks.spark import BatchFunction, copied, from_delta, reading, session
from tests.benchmarks.throughput import COLUMNS, STORED, steady_rate

#: Lines of one file and of one batch, and how many lines there are in all.
SIZES = {"10000": (10_000, 1, 500_000), "200000": (50_000, 4, 2_000_000)}
CONSUMERS = 4

#: Commits that stand in a table before a batch is timed, and how many batches are.
FEW, MANY = 100, 10_000
TIMED_BATCHES = 30


def throughput(bench: Bench) -> Iterator[Figure]:
    """Measure both in turns, with every row written; the budgets are 2.5 and 1.2 times bare Delta."""
    for (name, (file_lines, files, lines)), budget in zip(SIZES.items(), (2.5, 1.2), strict=True):
        place = bench.place / name
        journal = _journal(place, bench.runs + 1, file_lines, lines)
        plain = copied(journal, "order_line", place / "plain")
        work = {"files": files, "size": file_lines, "lines": lines}
        try:
            with session(place) as spark:
                # The first pair only warms the session up.
                pairs = [
                    rates_of_pair(spark, journal, plain, place / f"run-{run}", run=run, **work) for run in range(bench.runs + 1)
                ][1:]
        finally:
            kill_serving(journal)
        for row, part, held in ((f"sink-{name}", 0, budget), (f"sink-{name}-steady", 1, None)):
            ratios = [queue[part] / delta[part] for queue, delta in pairs]
            rates = [median(pair[side][part] for pair in pairs) for side in (0, 1)]
            batch = f"batches of {files * file_lines:,} rows into a Delta table, every row written, against bare Delta"
            what = batch if held else f"the same without the start of the query and its first batch ({name})"
            note = f"{spread(ratios)}; queue {rates[0]:,.0f}, Delta {rates[1]:,.0f} rows/s"
            yield Figure(row=row, what=what, value=median(ratios), unit="x", budget=held, at_least=True, note=note)


def consumers(bench: Bench) -> Iterator[Figure]:
    """Measure four consumers into one table against four into a table each; the budget is 0.8."""
    file_lines, files, lines = SIZES["10000"]
    journal = _journal(bench.place, 2 * (bench.runs + 1), file_lines, lines)
    ratios, rates = [], []
    try:
        with session(bench.place) as spark:
            for run in range(bench.runs + 1):
                found = {}
                for shared in (True, False) if run % 2 else (False, True):
                    place, queue = bench.place / f"run-{run}-{shared}", f"RUN_{2 * run + shared}"
                    tables = [str(place / ("sink" if shared else f"sink-{number}")) for number in range(CONSUMERS)]
                    streams = [
                        _into(spark, journal, queue, table, files * file_lines, subscription=f"s{number}")
                        for number, table in enumerate(tables)
                    ]
                    found[shared] = lines / _seconds(streams, place)
                    assert sum(_rows(table) for table in set(tables)) == lines
                ratios.append(found[True] / found[False])
                rates.append(found[True])
    finally:
        kill_serving(journal)
    note = f"{spread(ratios[1:])}; {median(rates[1:]):,.0f} rows/s into one table"
    what = f"{CONSUMERS} consumers into one table, against {CONSUMERS} into a table each"
    yield Figure(row="sink-consumers", what=what, value=median(ratios[1:]), unit="x", budget=0.8, at_least=True, note=note)


def growth(bench: Bench) -> Iterator[Figure]:
    """Measure a batch at 100 and at 10,000 commits in the table; the budget is 1.3."""
    file_lines, files, _ = SIZES["10000"]
    lines = TIMED_BATCHES * file_lines * files
    journal = _journal(bench.place, 2 * bench.runs + 1, file_lines, lines)
    times_ms: dict[int, list[float]] = {FEW: [], MANY: []}
    try:
        with session(bench.place) as spark:
            _batch_ms(spark, journal, "RUN_0", str(bench.place / "warm"), bench.place / "warm-checkpoint")
            for commits in times_ms:
                _fill(str(bench.place / f"filled-{commits}"), commits)
            for run in range(bench.runs):
                for number, commits in enumerate(times_ms):
                    table = str(shutil.copytree(bench.place / f"filled-{commits}", bench.place / f"sink-{run}-{commits}"))
                    place = bench.place / f"checkpoint-{run}-{commits}"
                    times_ms[commits].append(_batch_ms(spark, journal, f"RUN_{2 * run + number + 1}", table, place))
    finally:
        kill_serving(journal)
    ratios = [many / few for few, many in zip(times_ms[FEW], times_ms[MANY], strict=True)]
    note = f"{spread(ratios)}; {shown(median(times_ms[FEW]))} and {shown(median(times_ms[MANY]))} ms"
    what = f"a batch of {file_lines:,} rows with {MANY:,} commits in the table, against {FEW}"
    yield Figure(row="sink-growth", what=what, value=median(ratios), unit="x", budget=1.3, note=note)


def latency(bench: Bench) -> Iterator[Figure]:
    """Measure the time from publish until the row's commit stands in the sink; the budget is 0.4 times bare Delta."""
    pairs = []
    with session(bench.place) as spark:
        for run in range(bench.runs + 1):
            turns = [_late_by_queue, _late_by_delta]
            found: dict[Any, list[float]] = {}
            for turn in reversed(turns) if run % 2 else turns:
                place = bench.place / f"run-{run}-{turn.__name__}"
                definitions = {"message_types": {"json": {"topics": [TOPIC]}}, "queues": {TOPIC: {}}}
                journal = Journal.create(str(place / "journal"), definitions)
                try:
                    found[turn] = _visible_ms(turn(spark, journal, str(place / "sink")), journal, place)
                finally:
                    kill_serving(journal)
            pairs.append((found[_late_by_queue], found[_late_by_delta]))
    ratios = [percentile(queue, 0.5) / percentile(delta, 0.5) for queue, delta in pairs[1:]]
    medians = [median(percentile(pair[side], 0.5) for pair in pairs[1:]) for side in (0, 1)]
    note = f"{spread(ratios)}; queue {shown(medians[0])} ms, Delta {shown(medians[1])} ms"
    what = "publish to its row's commit in a Delta table, p50, against bare Delta"
    yield Figure(row="sink-latency", what=what, value=median(ratios), unit="x", budget=0.4, note=note)


def _journal(place: Path, queues: int, file_lines: int, lines: int) -> Journal:
    named = {f"RUN_{number}": {"underlying_topic": "ORDERS"} for number in range(queues)}
    definitions = {"message_types": {"order_line": {"columns": STORED, "topics": ["ORDERS"]}}, "queues": named}
    journal = Journal.create(str(place / "journal"), definitions)
    real = read_lines(ORDERS_CSV)
    with journal.publisher("bench") as publisher:
        for first in range(0, lines, file_lines):
            start = first % (real.num_rows - file_lines)
            publisher.publish(real.slice(start, file_lines), topic="ORDERS")
    return journal


def _into(
    spark: SparkSession,
    journal: Journal,
    queue: str,
    table: str,
    backlog: int,
    *,
    columns: str = COLUMNS,
    subscription: str = "bench",
) -> DataStreamWriter:
    names = columns.split(", ")
    wrapped = journal.queue(queue).into(table, lambda batch, _: batch.select(*names), subscription=subscription)
    return reading(spark, journal, queue, columns=columns, max_backlog=backlog, subscription=subscription).writeStream.foreachBatch(
        wrapped
    )


def _appending(table: str) -> BatchFunction:
    return lambda batch, _: batch.write.format("delta").mode("append").save(table)


def rates_of_pair(
    spark: SparkSession, journal: Journal, plain: str, place: Path, *, run: int, files: int, size: int, lines: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return rows per second of queue and of bare Delta, whole and steady."""
    turns: dict[str, Callable[[str], DataStreamWriter]] = {
        "queue": lambda sink: _into(spark, journal, f"RUN_{run}", sink, files * size),
        "delta": lambda sink: from_delta(spark, plain, _appending(sink), columns=COLUMNS, files=files),
    }
    rates = {}
    for name in turns if run % 2 else reversed(turns):
        sink = str(place / name / "sink")
        began_s = time.perf_counter()
        query = _run(turns[name](sink), place / name)
        rates[name] = (lines / (time.perf_counter() - began_s), steady_rate(query))
        assert _rows(sink) == lines, "both did all the work, or the comparison means nothing"
    return rates["queue"], rates["delta"]


def _run(stream: DataStreamWriter, place: Path) -> StreamingQuery:
    query = stream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _seconds(streams: list[DataStreamWriter], place: Path) -> float:
    began_s = time.perf_counter()
    queries = [
        stream.option("checkpointLocation", str(place / f"checkpoint-{number}")).trigger(availableNow=True).start()
        for number, stream in enumerate(streams)
    ]
    for query in queries:
        query.awaitTermination()
    return time.perf_counter() - began_s


def _rows(table: str) -> int:
    return int(DeltaTable(table).to_pyarrow_dataset().count_rows())


def _fill(table: str, commits: int) -> None:
    """Make a table of so many commits, as another subscription's batches without rows leave them."""
    sink = SinkTable(table, {})
    columns = [{"name": name, "type": kind} for name, kind in _COLUMN_TYPES.items()]
    plan = sink.plan(columns)
    for attempt in range(1, commits):
        sink.append(plan, [], transaction="sparkqueue:other", attempt=attempt)


_COLUMN_TYPES = {"InvoiceDate": "timestamp", "Country": "string", "Quantity": "long", "UnitPrice": "double"}


def _batch_ms(spark: SparkSession, journal: Journal, queue: str, table: str, place: Path) -> float:
    file_lines, files, _ = SIZES["10000"]
    query = _run(_into(spark, journal, queue, table, file_lines * files), place)
    return median([each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows][1:])


def _late_by_queue(spark: SparkSession, journal: Journal, sink: str) -> DataStreamWriter:
    return _into(spark, journal, TOPIC, sink, 100_000, columns="value")


def _late_by_delta(spark: SparkSession, journal: Journal, sink: str) -> DataStreamWriter:
    return from_delta(spark, journal.store.messages_uri("json"), _appending(sink), columns="value", files=1_000)


def _visible_ms(stream: DataStreamWriter, journal: Journal, place: Path) -> list[float]:
    """Publish while the stream runs; returns how long after its publish each commit's row stood in the sink."""
    query = stream.option("checkpointLocation", str(place / "checkpoint")).start()
    try:
        publish_small_commits(journal)
        deadline_s = time.monotonic() + 60
        while len(times_ms := visible_ms_by_commit(place / "sink")) < COMMITS:
            assert time.monotonic() < deadline_s, "the rows did not come"
            threading.Event().wait(0.5)
    finally:
        query.stop()
    return [times_ms[commit] for commit in range(WARM_COMMITS, COMMITS)]


def visible_ms_by_commit(sink: Path) -> dict[int, float]:
    """Read from the log of a table in a folder how long after its publish each commit's row became visible."""
    found: dict[int, float] = {}
    for entry in sorted((sink / "_delta_log").glob("*.json")):
        for action in map(json.loads, entry.read_text().splitlines()):
            if "add" in action:
                for value in pq.read_table(sink / action["add"]["path"]).column("value").to_pylist():
                    message = json.loads(str(value))
                    found[message["commit"]] = entry.stat().st_mtime * 1e3 - message["sent_ms"]
    return found
