"""Batches of the real Spark from a queue into a table, beside those of bare Delta from table to table, all on a far store.

Both have every row written. Bare Delta's is `writeStream.format("delta")`, which has no way without its checkpoint; it keeps that
on the store, as whoever runs it in a cluster does.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from order_file import ORDERS_CSV, read_lines
from spark_queue import Journal
from tests.benchmarks.far_store.s3a import bucket, check_jars, checkpoints, far_session
from tests.benchmarks.far_store.server import FAR, FarServer, Request, between_commits, far_server, waiting_s
from tests.benchmarks.figure import Bench, Figure, median, shown, spread
from tests.benchmarks.journals import kill_serving
from tests.benchmarks.spark import reading
from tests.benchmarks.throughput import COLUMNS, STORED
from tests.integration.s3_server import BUCKET

#: Batches of one query, of one file each.
_BATCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to get rows into a table."""

    #: Stands in rows of the report and in keys of the store.
    name: str
    what: str
    is_queue: bool
    #: Whether Spark's checkpoint is on the store.
    far_checkpoint: bool
    #: Whether S3A and the checkpoint are tuned; both by default otherwise.
    tuned: bool = False


_LOCAL = Side(name="queue", what="queue → table, checkpoint on a local disk", is_queue=True, far_checkpoint=False)
_FAR = Side(name="queue-far", what="queue → table, checkpoint on the store", is_queue=True, far_checkpoint=True)
_FAR_TUNED = Side(
    name="queue-far-tuned", what="queue → table, tuned checkpoint on the store", is_queue=True, far_checkpoint=True, tuned=True
)
_DELTA = Side(name="delta", what="bare Delta → Delta", is_queue=False, far_checkpoint=True)
_DELTA_TUNED = Side(name="delta-tuned", what="bare Delta → Delta, tuned", is_queue=False, far_checkpoint=True, tuned=True)
_SIDES = (_LOCAL, _FAR, _FAR_TUNED, _DELTA, _DELTA_TUNED)

#: Which is held against which, and the budget at 10,000 rows.
_COMPARED = ((_LOCAL, _DELTA, 4.0), (_LOCAL, _DELTA_TUNED, 3.0), (_FAR, _DELTA, 1.5), (_FAR_TUNED, _DELTA_TUNED, None))
_BUDGETED_ROWS = 10_000
_WAITING_BUDGET_MS = 400


@dataclass(frozen=True, slots=True)
class _Found:
    """One query: the wall time of its batches but the first, and the requests from one commit of its table to the next."""

    batch_ms: Sequence[float]
    requests: Sequence[Sequence[Request]]


def measure(bench: Bench, rows: int) -> Iterator[Figure]:
    """Measure batches of some rows in turns."""
    check_jars()
    with far_server(bench.place / "store") as server:
        journal = _journal(server, bench, rows)
        try:
            with far_session(server, bench.place) as spark:
                # The first turn only warms the session up, on a near store.
                turns = [_turn(spark, server, journal, bench, run=run, rows=rows) for run in range(bench.runs + 1)][1:]
        finally:
            server.wait(dict.fromkeys(FAR, 0))
            kill_serving(journal)
    is_budgeted = rows == _BUDGETED_ROWS
    for one, other, budget in _COMPARED:
        ratios = [median(turn[other.name].batch_ms) / median(turn[one.name].batch_ms) for turn in turns]
        walls = [shown(median(median(turn[side.name].batch_ms) for turn in turns)) for side in (one, other)]
        yield Figure(
            row=f"store-spark-{rows}-{one.name}-{other.name}",
            what=f"batches of {rows:,} rows by Spark on a far store: {one.what}, against {other.what}",
            value=median(ratios), unit="x", budget=budget if is_budgeted else None, at_least=True,
            note=f"{spread(ratios)}; {walls[0]} and {walls[1]} ms a batch",
        )  # fmt: skip
    for side in _SIDES:
        batches = [each for turn in turns for each in turn[side.name].requests]
        waits_ms = [1e3 * waiting_s(each) for each in batches]
        waited = f"{len(batches)} batches, {shown(min(waits_ms))} to {shown(max(waits_ms))} ms"
        yield Figure(
            row=f"store-spark-{rows}-{side.name}-waiting", what=f"{side.what}: a batch of {rows:,} rows, waiting",
            value=median(waits_ms), unit="ms", budget=_WAITING_BUDGET_MS if is_budgeted and side is _LOCAL else None,
            note=f"{waited}; requests a batch: {_requests_text(batches)}",
        )  # fmt: skip


def _journal(server: FarServer, bench: Bench, rows: int) -> Journal:
    """Publish what each query takes: a queue each has its own of, and tables to read for bare Delta."""
    names = [_queue(side, run) for side in _SIDES if side.is_queue for run in range(bench.runs + 1)]
    definitions = {
        "message_types": {"order_line": {"columns": STORED, "topics": ["ORDERS"]}},
        "queues": {name: {"underlying_topic": "ORDERS"} for name in names},
    }
    journal = Journal.create(f"s3://{BUCKET}/journal", definitions, storage_options=server.options)
    lines = read_lines(ORDERS_CSV)
    with journal.publisher("bench") as publisher:
        for first in range(0, _BATCHES * rows, rows):
            publisher.publish(lines.slice(first % (lines.num_rows - rows), rows), topic="ORDERS")
    # The gateway serves what stands in its folder. No coordinator merges files of a copy.
    published = _folder(bench, journal.store.messages_uri("order_line").removeprefix("s3://"))
    for tuned in (False, True):
        shutil.copytree(published, _folder(bench, f"{bucket(tuned=tuned)}/source"))
    return journal


def _folder(bench: Bench, key: str) -> Path:
    return bench.place / "store" / key


def _queue(side: Side, run: int) -> str:
    return f"{side.name}-{run}".replace("-", "_").upper()


def _turn(spark: SparkSession, server: FarServer, journal: Journal, bench: Bench, *, run: int, rows: int) -> dict[str, _Found]:
    found = {}
    for side in _SIDES if run % 2 else reversed(_SIDES):
        stream = _stream(spark, journal, side, run=run, rows=rows)
        checkpoint = f"s3a://{bucket(tuned=side.tuned)}" if side.far_checkpoint else str(bench.place)
        server.forget()
        server.wait(FAR if run else dict.fromkeys(FAR, 0))
        with checkpoints(spark, tuned=side.tuned):
            query = _run(stream, f"{checkpoint}/checkpoint/{side.name}-{run}")
        server.wait(dict.fromkeys(FAR, 0))
        assert spark.read.format("delta").load(f"s3a://{_table(side, run)}").count() == _BATCHES * rows
        batch_ms = [each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows][1:]
        assert len(batch_ms) == _BATCHES - 1
        # A sink's table is made in a commit of its own.
        requests = between_commits(server.requests(), _table(side, run))[-len(batch_ms) :]
        found[side.name] = _Found(batch_ms, requests)
    return found


def _table(side: Side, run: int) -> str:
    return f"{bucket(tuned=side.tuned)}/table/{side.name}-{run}"


def _stream(spark: SparkSession, journal: Journal, side: Side, *, run: int, rows: int) -> DataStreamWriter:
    names = COLUMNS.split(", ")
    if side.is_queue:
        queue = _queue(side, run)
        read = reading(spark, journal, queue, columns=COLUMNS, max_backlog=rows, subscription="bench")
        wrapped = journal.queue(queue).into(
            f"s3://{_table(side, run)}", lambda batch, _: batch.select(*names), subscription="bench"
        )
        return read.writeStream.foreachBatch(wrapped)
    source = f"s3a://{bucket(tuned=side.tuned)}/source"
    read = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source).select(*names)
    return read.writeStream.format("delta").option("path", f"s3a://{_table(side, run)}")


def _run(stream: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


#: What of a batch a request is for, by what its key has behind the bucket.
_PREFIXES = {"journal": "the journal", "source": "the source", "table": "the table", "checkpoint": "Spark's logs"}


def _requests_text(batches: Sequence[Sequence[Request]]) -> str:
    """Say how many requests there are of each prefix and kind, on average of the batches."""
    counts: dict[str, Counter[str]] = {}
    for each in (each for batch in batches for each in batch):
        prefix = each.key.strip("/").split("/")[1:2]
        counts.setdefault(_PREFIXES.get("".join(prefix), "others"), Counter())[each.kind] += 1
    told = []
    for place in [*_PREFIXES.values(), "others"]:
        if kinds := counts.get(place):
            by_kind = ", ".join(f"{shown(count / len(batches))} {kind}" for kind, count in sorted(kinds.items()))
            told.append(f"{place} {shown(kinds.total() / len(batches))} ({by_kind})")
    return f"{shown(sum(map(len, batches)) / len(batches))}: {', '.join(told)}"
