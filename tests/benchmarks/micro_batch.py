"""The queue's own share of a micro-batch: what Spark waits for, over the wire, on a journal on disk.

Planner and reporter are the product's own; only Spark is missing. Each batch asks for the rows of its lease (`partitions`), says
that fn starts and has ended, then proves the lease and gets the next (`latestOffset`), while the coordinator checkpoints and
cleans its log as it always does.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from spark_queue.protocol.endpoint import LOCAL
from spark_queue.source.run_reporter import RunReporter
from tests.benchmarks.figure import Bench, Figure, median, percentile, shown, spread
from tests.benchmarks.journals import QUEUE, SUBSCRIPTION, BenchJournal, kill

#: Batches of one run, and messages of one batch.
BATCHES = 10_000
BATCH_MESSAGES = 100

#: How many batches around a place in the log stand for it.
_WINDOW = 500

#: Times of every batch of one run by call, in milliseconds.
Times = dict[str, list[float]]

_NEXT = "latestOffset"


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure p50 and p99 of 10,000 batches (10 and 50 ms), and how the commit time grows with the log."""
    runs, recoveries_s = [], []
    for run in range(bench.runs):
        journal = _journal(bench, run, BATCHES)
        with journal.coordinator():
            runs.append(take_batches(journal, BATCHES))
        recoveries_s.append(_recovery_s(journal))
    for share, budget in ((0.5, 10), (0.99, 50)):
        values = [percentile(times[_NEXT], share) for times in runs]
        name = f"p{share * 100:.0f}"
        what = f"`latestOffset` incl. commit, {name} of {BATCHES:,} batches"
        note = f"{spread(values)}; {BATCH_MESSAGES} messages a batch, log clean-up active"
        yield Figure(row=f"share-{name}", what=what, value=median(values), unit="ms", budget=budget, note=note)
    whole = [median(map(sum, zip(*times.values(), strict=True))) for times in runs]
    parts = ", ".join(f"{call} {shown(median(median(times[call]) for times in runs))}" for call in runs[0])
    note = f"{spread(whole)}; {parts}"
    yield Figure(row="share-all-calls", what="all calls of a micro-batch, p50", value=median(whole), unit="ms", note=note)
    growth = [_around(times[_NEXT], BATCHES) / _around(times[_NEXT], 1_000) for times in runs]
    note = f"{spread(growth)}; the budget is meant for 100,000 commits: see commit-growth"
    what = f"commit time at {BATCHES:,} commits against 1,000"
    yield Figure(row="growth", what=what, value=median(growth), unit="x", budget=1.5, note=note)
    what = f"recovery after {BATCHES:,} batches"
    yield Figure(row="recovery-batches", what=what, value=median(recoveries_s), unit="s", note=spread(recoveries_s))


def profile(bench: Bench) -> Iterator[Figure]:
    """Yield where the time of `latestOffset` goes, and what of it is the coordinator's; no budgets."""
    batches = BATCHES // 5
    journal = _journal(bench, 0, batches)
    told = bench.place / "steps.json"
    with journal.coordinator("tests.benchmarks.timed_coordinator", str(told)) as process:
        times = take_batches(journal, batches)
        cpu = process.cpu_times()
    for call, values in times.items():
        yield Figure(row=f"profile-{call}", what=f"caller: `{call}`", value=median(values), unit="ms", note=_tail(values))
    for step, values in json.loads(told.read_text()).items():
        row = f"profile-{step.replace(' ', '-')}"
        yield Figure(row=row, what=f"coordinator: {step}", value=median(values), unit="ms", note=_tail(values))
    cpu_ms = (cpu.user + cpu.system) * 1e3 / batches
    yield Figure(row="profile-cpu", what="coordinator: processor time of a batch, start included", value=cpu_ms, unit="ms")


def take_batches(journal: BenchJournal, batches: int) -> Times:
    """Be a subscription's planner and batch wrapper for some batches, and time what they wait for."""
    times: Times = defaultdict(list)
    planner = journal.planner()
    reporter = RunReporter(journal.store, endpoint=LOCAL, queue=QUEUE, subscription=SUBSCRIPTION)
    granted = planner.next(finished=0, limit=BATCH_MESSAGES, wait_ms=1_000)
    for _ in range(batches):
        with _timed(times, "partitions"):
            rows = planner.rows(granted.lease)
        assert rows.pieces.num_rows
        with _timed(times, "fn starts"):
            run = reporter.start().run
        with _timed(times, "fn ended"):
            reporter.end(run, (), settle=False)
        with _timed(times, _NEXT):
            granted = planner.next(finished=granted.lease, limit=BATCH_MESSAGES, wait_ms=1_000)
        assert granted.messages == BATCH_MESSAGES
    planner.leave()
    return times


@contextmanager
def _timed(times: Times, call: str) -> Iterator[None]:
    began_s = time.perf_counter()
    yield
    times[call].append((time.perf_counter() - began_s) * 1e3)


def _journal(bench: Bench, run: int, batches: int) -> BenchJournal:
    return BenchJournal(bench.place / f"journal-{run}", messages=(batches + 1) * BATCH_MESSAGES)


def _tail(values: list[float]) -> str:
    return f"p99 {shown(percentile(values, 0.99))} ms, {len(values):,} times, {shown(sum(values) / 1e3)} s in all"


def _around(values: list[float], batch: int) -> float:
    end = min(batch + _WINDOW // 2, len(values))
    return median(values[end - _WINDOW : end])


def _recovery_s(journal: BenchJournal) -> float:
    began_s = time.perf_counter()
    pong = journal.serving()
    took_s = time.perf_counter() - began_s
    kill(pong)
    return took_s
