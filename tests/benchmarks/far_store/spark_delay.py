"""Publish until its row is in a table, by the real Spark on a far store: a queue's stream beside bare Delta's."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_queue import Journal
from tests.benchmarks.far_store.s3a import check_jars, far_session
from tests.benchmarks.far_store.server import FAR, FarServer, far_server
from tests.benchmarks.figure import Bench, Figure, median, percentile, shown, spread
from tests.benchmarks.journals import TOPIC, kill_serving
from tests.benchmarks.latency import publish_small_commits
from tests.benchmarks.sinks import visible_ms_by_commit
from tests.benchmarks.spark import reading
from tests.integration.s3_server import BUCKET

#: Commits of one run, how many of its first are left out, and how far they are apart.
_COMMITS, _WARM_COMMITS, _PAUSE_MS = 50, 10, 1_500

#: How long the last rows may take.
_DEADLINE_S = 120

#: Makes a stream of a journal's messages into the table at a key of the bucket.
_Turn = Callable[[SparkSession, Journal, str], DataStreamWriter]


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure both in turns; the budgets of the median are 600 ms, and 0.3 times bare Delta.

    The queue's checkpoint is on a local disk, that of bare Delta on the store; both are Spark's defaults.
    """
    check_jars()
    pairs = []
    for run in range(bench.runs):
        place = bench.place / f"run-{run}"
        with far_server(place / "store") as server, far_session(server, place) as spark:
            turns: dict[_Turn, str] = {_by_queue: str(place), _by_delta: f"s3a://{BUCKET}"}
            found = {}
            for turn in turns if run % 2 else reversed(turns):
                found[turn] = _times_ms(spark, server, bench, turn, f"{turns[turn]}/checkpoint{turn.__name__}", run=run)
            pairs.append((found[_by_queue], found[_by_delta]))
    for share, budget in ((0.5, 600), (0.99, None)):
        queue = [percentile(times_ms, share) for times_ms, _ in pairs]
        delta = [percentile(times_ms, share) for _, times_ms in pairs]
        name = f"p{share * 100:.0f}"
        what = f"publish until its row's commit in a table, by Spark on a far store, {name}"
        note = f"{spread(queue)}; bare Delta {shown(median(delta))} ms"
        yield Figure(row=f"store-spark-row-{name}", what=what, value=median(queue), unit="ms", budget=budget, note=note)
        ratios = [one / other for one, other in zip(queue, delta, strict=True)]
        held = 0.3 if budget else None
        what = f"{what}, against bare Delta → Delta"
        row = f"store-spark-row-{name}-delta"
        yield Figure(row=row, what=what, value=median(ratios), unit="x", budget=held, note=spread(ratios))


def _by_queue(spark: SparkSession, journal: Journal, table: str) -> DataStreamWriter:
    read = reading(spark, journal, TOPIC, columns="value", max_backlog=1_000, subscription="bench")
    wrapped = journal.queue(TOPIC).into(f"s3://{BUCKET}/{table}", lambda batch, _: batch.select("value"), subscription="bench")
    return read.writeStream.foreachBatch(wrapped)


def _by_delta(spark: SparkSession, journal: Journal, table: str) -> DataStreamWriter:
    source = journal.store.messages_uri("json").replace("s3://", "s3a://")
    read = spark.readStream.format("delta").option("maxFilesPerTrigger", 1_000).load(source).select("value")
    return read.writeStream.format("delta").option("path", f"s3a://{BUCKET}/{table}")


def _times_ms(spark: SparkSession, server: FarServer, bench: Bench, turn: _Turn, checkpoint: str, *, run: int) -> list[float]:
    """Publish while the stream runs; returns how long after its publish each commit's row stood in the table."""
    definitions = {"message_types": {"json": {"topics": [TOPIC]}}, "queues": {TOPIC: {}}}
    journal = Journal.create(f"s3://{BUCKET}/journal{turn.__name__}", definitions, storage_options=server.options)
    # The stream has begun when this one is there; before it bare Delta has no table to read.
    journal.publish([{"value": json.dumps({"commit": -1, "sent_ms": 0})}], topic=TOPIC)
    table = bench.place / f"run-{run}" / "store" / BUCKET / f"table{turn.__name__}"
    server.wait(FAR)
    query = turn(spark, journal, table.name).option("checkpointLocation", checkpoint).start()
    try:
        _wait_for(table, {-1})
        publish_small_commits(journal, commits=_COMMITS, pause_ms=_PAUSE_MS)
        found_ms = _wait_for(table, set(range(_COMMITS)))
    finally:
        server.wait(dict.fromkeys(FAR, 0))
        query.stop()
        kill_serving(journal)
    return [found_ms[commit] for commit in range(_WARM_COMMITS, _COMMITS)]


def _wait_for(table: Path, commits: set[int]) -> dict[int, float]:
    """Wait until the rows of some commits stand in a table; returns how long after its publish each of its commits' did."""
    deadline_s = time.monotonic() + _DEADLINE_S
    while not (found_ms := visible_ms_by_commit(table)).keys() >= commits:
        assert time.monotonic() < deadline_s, "the rows did not come"
        threading.Event().wait(0.5)
    return found_ms
