"""A queue over a Delta table that others write, beside a bare Delta stream of the same table, and what following it costs."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql.streaming.readwriter import DataStreamWriter

from order_file import ORDERS_CSV, read_lines
from spark_queue import Journal
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import Entered, Followed, Passed, Record
from spark_queue.protocol import wire
from tests.benchmarks.far_store.rows import kinds_text, requests_of
from tests.benchmarks.far_store.server import FAR, far_server, kinds_of
from tests.benchmarks.figure import Bench, Figure, median, percentile, shown, spread
from tests.benchmarks.journals import kill_serving, serving
from tests.benchmarks.latency import COMMITS, PAUSE_MS, WARM_COMMITS, Arrivals
from tests.benchmarks.sinks import rates_of_pair
from tests.benchmarks.spark import from_delta, from_queue, session
from tests.integration.s3_server import BUCKET

#: Rows of a commit, and commits of a run.
_LINES, _LINE_COMMITS = 100_000, 10

#: Commits that a table is ahead, how long a store waits before it answers then, in milliseconds, and rows of each.
_BEHIND, _BEHIND_MS, _BEHIND_ROWS = 10_000, 25, 10

_FILES, _PATHS = 100_000, 1_000_000

#: How long an idle journal is counted, and how long it is idle before, in seconds.
_IDLE_S, _SETTLED_S = 30, 15

_DEADLINE_S = 300.0


def throughput(bench: Bench) -> Iterator[Figure]:
    """Measure batches of 100,000 rows, one commit of the table each, into another table; the budget is that of bare Delta."""
    table, lines = str(bench.place / "table"), _LINES * _LINE_COMMITS
    _append_lines(table)
    queues = {f"RUN_{number}": {"underlying_topic": "orders"} for number in range(bench.runs + 1)}
    journal = _followed(bench.place / "journal", table, queues, begin="beginning")
    try:
        with session(bench.place) as spark:
            # The first pair only warms the session up.
            pairs = [
                rates_of_pair(spark, journal, table, bench.place / f"run-{run}", run=run, files=1, size=_LINES, lines=lines)
                for run in range(bench.runs + 1)
            ][1:]
    finally:
        kill_serving(journal)
    for row, part, budget in (("follow-100000", 0, 1.0), ("follow-100000-steady", 1, None)):
        ratios = [queue[part] / delta[part] for queue, delta in pairs]
        rates = [median(pair[side][part] for pair in pairs) for side in (0, 1)]
        batch = f"commits of {_LINES:,} rows of a followed table into another, every row written, against bare Delta"
        what = batch if budget else "the same without the start of the query and its first batch"
        note = f"{spread(ratios)}; queue {rates[0]:,.0f}, Delta {rates[1]:,.0f} rows/s"
        yield Figure(row=row, what=what, value=median(ratios), unit="x", budget=budget, at_least=True, note=note)


def latency(bench: Bench) -> Iterator[Figure]:
    """Measure the time from a commit of the table to foreachBatch, beside bare Delta; the budget of the median is 1."""
    pairs: list[tuple[list[float], list[float]]] = []
    with session(bench.place) as spark:
        for run in range(bench.runs + 1):
            times_ms: dict[str, list[float]] = {}
            for name in ("queue", "delta") if run % 2 else ("delta", "queue"):
                place, arrivals = bench.place / f"run-{run}-{name}", Arrivals()
                table = str(place / "table")
                write_deltalake(table, pa.table({"value": pa.array([], pa.string())}))
                if name == "delta":
                    times_ms[name] = _times_ms(
                        from_delta(spark, table, arrivals.note, columns="value", files=1_000), place, table, arrivals
                    )
                    continue
                journal = _followed(place / "journal", table, {"WORK": {"underlying_topic": "orders"}})
                try:
                    stream = from_queue(spark, journal, "WORK", arrivals.note, columns="value", max_backlog=100_000)
                    times_ms[name] = _times_ms(stream, place, table, arrivals)
                finally:
                    kill_serving(journal)
            pairs.append((times_ms["queue"], times_ms["delta"]))
    for share, budget in ((0.5, 1.0), (0.99, None)):
        queue, delta = ([percentile(pair[side], share) for pair in pairs[1:]] for side in (0, 1))
        ratios = [one / other for one, other in zip(queue, delta, strict=True)]
        name = f"p{share * 100:.0f}"
        what = f"a commit of a followed table to foreachBatch, one every {PAUSE_MS} ms, {name}, against bare Delta"
        note = f"{spread(ratios)}; queue {shown(median(queue))} ms, Delta {shown(median(delta))} ms"
        yield Figure(row=f"follow-latency-{name}", what=what, value=median(ratios), unit="x", budget=budget, note=note)


def behind(bench: Bench) -> Iterator[Figure]:
    """Measure a coordinator's start when its table is 10,000 commits ahead, at 25 ms a request; the budget is 20 s."""
    with far_server(bench.place) as server:
        table = bench.place / BUCKET / "table"
        _make_table(table, [])
        journal = _followed(
            f"s3://{BUCKET}/journal", f"s3://{BUCKET}/table", {"WORK": {"underlying_topic": "orders"}}, server.options
        )
        kill_serving(journal)
        for version in range(1, _BEHIND + 1):
            _write_entry(table, version, [_append_info(), _add(version, _BEHIND_ROWS)])
        server.wait(dict.fromkeys(FAR, _BEHIND_MS))
        server.forget()
        began_s = time.perf_counter()
        try:
            serving(journal.store, journal.journal_id())
            _await_version(journal, _BEHIND)
        finally:
            took_s, requests = time.perf_counter() - began_s, server.requests()
            server.wait(dict.fromkeys(FAR, 0))
            kill_serving(journal)
    what = f"a coordinator's start when its table is {_BEHIND:,} commits ahead, {_BEHIND_MS} ms a request"
    note = f"{kinds_text(kinds_of(requests))}; {sum(each.answered_bytes for each in requests) / 1e6:,.1f} MB"
    yield Figure(row="follow-behind", what=what, value=took_s, unit="s", budget=20, note=note)


def beginning(bench: Bench) -> Iterator[Figure]:
    """Measure how a table of 100,000 files is followed from its beginning: time, and the coordinator's memory."""
    table = bench.place / "table"
    _make_table(table, [_add(number, _BEHIND_ROWS) for number in range(_FILES)])
    began_s = time.perf_counter()
    journal = _followed(bench.place / "journal", str(table), {"WORK": {"underlying_topic": "orders"}}, begin="beginning")
    created_s = time.perf_counter() - began_s
    try:
        process = psutil.Process(serving(journal.store, journal.journal_id()).pid)
        _await_version(journal, 0)
        took_s, used_mib = time.perf_counter() - began_s, process.memory_full_info().uss / 2**20
        peak_mib = _peak_mib(process.pid)
    finally:
        kill_serving(journal)
    what = f"a table of {_FILES:,} files, from `init` until all its rows are in a queue"
    yield Figure(row="follow-beginning", what=what, value=took_s, unit="s", note=f"`init` {shown(created_s)} s of it")
    what = f"memory of the coordinator that follows a table of {_FILES:,} files"
    yield Figure(
        row="follow-beginning-memory", what=what, value=used_mib, unit="MiB", note=f"at most {shown(peak_mib)} MiB meanwhile"
    )


def paths(bench: Bench) -> Iterator[Figure]:
    """Measure the memory of what is known of 1,000,000 files that a table has added, and the part of their paths alone."""
    del bench
    for row, what, fold in (
        ("entered", "that brought messages", _entered),
        ("passed", "that brought none, of as many compactions", _passed),
    ):
        all_mib, paths_mib = _mib_of(map(fold, range(_PATHS)))
        note = f"{shown(paths_mib)} MiB of it to know their paths again"
        what = f"memory of {_PATHS:,} files of a followed table {what}"
        yield Figure(row=f"follow-paths-{row}", what=what, value=all_mib, unit="MiB", note=note)


def _mib_of(records: Iterator[Record]) -> tuple[float, float]:
    """Return the memory of all that records of files leave in a state, and that of the paths alone."""
    known, before_mib = MessageTypeState(), _used_mib()
    columns = (("id", "id", "BIGINT"),)
    begun = Followed(table="s3://lake/orders", id=str(uuid.uuid4()), version=0, token="", committed=0, columns=columns)
    for record in chain([Record(body=begun, message_type="orders")], records):
        known.fold(record)
    assert known.followed is not None
    table = known.followed
    # A path of a file in which messages stand is there anyhow.
    paths_bytes = sys.getsizeof(table.added) + sum(sys.getsizeof(path) for path in table.added if path not in table.entered)
    return _used_mib() - before_mib, paths_bytes / 2**20


def _entered(number: int) -> Record:
    path, at = f"part-{number:08d}-{uuid.uuid4()}-c000.snappy.parquet", number * _BEHIND_ROWS
    topics = ("orders", "orders")
    body = Entered(
        path=path, rows=_BEHIND_ROWS, version=number + 1, token=f"{number:032x}", topics=topics, published=0, partition={}
    )
    return Record(body=body, message_type="orders", ranges=((at, at + _BEHIND_ROWS),))


def _passed(number: int) -> Record:
    path = f"part-{number:08d}-{uuid.uuid4()}-c000.snappy.parquet"
    told = Passed(version=number + 1, token=f"{number:032x}", what="old rows", operation="OPTIMIZE", id="", added=(path,))
    return Record(body=told, message_type="orders")


def _used_mib() -> float:
    gc.collect()
    return psutil.Process().memory_full_info().uss / 2**20


def idle(bench: Bench) -> Iterator[Figure]:
    """Measure what is asked of the store while nothing is appended: a coordinator alone, and one at which a receiver waits."""
    with far_server(bench.place) as server:
        _make_table(bench.place / BUCKET / "table", [])
        journal = _followed(
            f"s3://{BUCKET}/journal", f"s3://{BUCKET}/table", {"WORK": {"underlying_topic": "orders"}}, server.options
        )
        try:
            with journal.queue("WORK").receive() as messages:
                messages.get(_SETTLED_S)
                waited = requests_of(server, partial(messages.get, _IDLE_S))
            alone = requests_of(server, partial(threading.Event().wait, _IDLE_S))
        finally:
            kill_serving(journal)
    for row, who, requests in (
        ("follow-waiting", "at which one receiver waits", waited),
        ("follow-idle", "without callers", alone),
    ):
        note = f"{_IDLE_S} s: {kinds_text(kinds_of(requests))}"
        what = f"requests a second of a coordinator that follows a table, {who}"
        yield Figure(row=row, what=what, value=len(requests) / _IDLE_S, unit="requests/s", note=note)


def _followed(
    place: Path | str, table: str, queues: dict[str, Any], options: dict[str, str] | None = None, *, begin: str = "now"
) -> Journal:
    definitions = {
        "journal": {"coordinator_idle": "1h"}, "message_types": {"orders": {"table": table, "from": begin}}, "queues": queues
    }  # fmt: skip
    return Journal.create(str(place), definitions, storage_options=options)


def _append_lines(table: str) -> None:
    """Append the real order lines, a commit of one file after the other."""
    real = read_lines(ORDERS_CSV)
    for commit in range(_LINE_COMMITS):
        start = commit * _LINES % (real.num_rows - _LINES)
        write_deltalake(table, real.slice(start, _LINES), mode="append", target_file_size=2**30)


def _times_ms(stream: DataStreamWriter, place: Path, table: str, arrivals: Arrivals) -> list[float]:
    query = stream.option("checkpointLocation", str(place / "checkpoint")).start()
    try:
        subprocess.run([sys.executable, "-m", "tests.benchmarks.small_appends", table, str(COMMITS), str(PAUSE_MS)], check=True)
        arrivals.wait_for(COMMITS)
    finally:
        query.stop()
    return [arrivals.times_ms[commit] for commit in range(WARM_COMMITS, COMMITS)]


def _await_version(journal: Journal, version: int) -> None:
    """Wait until the coordinator has read the table's log up to a version; it takes no message, since there are no files."""
    client, until_s, read = CoordinatorClient(journal.store, journal.journal_id()), time.monotonic() + _DEADLINE_S, -1
    while read < version:
        assert time.monotonic() < until_s, "the log was not read"
        told = client.call(wire.AwaitPublish(message_type="orders", after_version=version - 1, wait_ms=1_000))
        assert isinstance(told, wire.LogHead)
        read = told.head
    client.close()


def _make_table(table: Path, adds: Sequence[dict[str, Any]]) -> None:
    """Make a table whose log names files; none of them is ever opened."""
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    metadata = {
        "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema),
        "partitionColumns": [], "configuration": {}, "createdTime": 0,
    }  # fmt: skip
    (table / "_delta_log").mkdir(parents=True)
    _write_entry(table, 0, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}, *adds])


def _write_entry(table: Path, version: int, actions: Sequence[dict[str, Any]]) -> None:
    (table / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def _append_info() -> dict[str, Any]:
    return {"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "timestamp": int(time.time() * 1e3)}}


def _add(number: int, rows: int) -> dict[str, Any]:
    about = {
        "size": 1_000,
        "modificationTime": int(time.time() * 1e3),
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows}),
    }
    return {"add": {"path": f"part-{number:08d}.parquet", "partitionValues": {}, **about}}


def _peak_mib(pid: int) -> float:
    """Return the most memory that a process has had, as the system tells it."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
