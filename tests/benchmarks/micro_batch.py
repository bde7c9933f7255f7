"""The queue's own share of a micro-batch: what a planner waits for, over the wire, on a journal on disk.

The planner is the product's own; only Spark is missing. Each batch proves the last lease, gets the next (`latestOffset`) and
asks for its rows (`partitions`), while the coordinator checkpoints and cleans its log as it always does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.benchmarks.figure import Bench, Figure, median, percentile, spread
from tests.benchmarks.journals import BenchJournal, kill

#: Batches of one run, and messages of one batch.
BATCHES = 2_000
BATCH_MESSAGES = 100

#: How many batches around a place in the log stand for it.
_WINDOW = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Times of every batch of one run, in milliseconds."""

    next_ms: list[float]
    rows_ms: list[float]


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure p50 and p99 of 10,000 batches (10 and 50 ms), and how the commit time grows with the log."""
    shares, recoveries_s = [], []
    for run in range(bench.runs):
        journal = BenchJournal(bench.place / f"journal-{run}", messages=(BATCHES + 1) * BATCH_MESSAGES)
        with journal.coordinator():
            shares.append(take_batches(journal, BATCHES))
        recoveries_s.append(_recovery_s(journal))
    for share, budget in ((0.5, 10), (0.99, 50)):
        values = [percentile(each.next_ms, share) for each in shares]
        yield Figure(
            row=f"share-p{share * 100:.0f}", what=f"`latestOffset` incl. commit, p{share * 100:.0f} of {BATCHES:,}", value=median(values),
            unit="ms", budget=budget, note=f"{spread(values)}; {BATCH_MESSAGES} messages a batch, log clean-up active",
        )  # fmt: skip
    values = [percentile(each.rows_ms, 0.5) for each in shares]
    yield Figure(row="share-partitions-p50", what="`partitions`, p50", value=median(values), unit="ms", note=spread(values))
    growth = [_around(each.next_ms, BATCHES) / _around(each.next_ms, 1_000) for each in shares]
    times = f"median {median(_around(each.next_ms, 1_000) for each in shares):.2f} ms at 1,000"
    yield Figure(
        row="growth-10000", what="commit time at 10,000 commits against 1,000", value=median(growth), unit="x", budget=1.5,
        note=f"{spread(growth)}; {times}; the budget is meant for 100,000 commits, with compaction",
    )  # fmt: skip
    yield Figure(
        row="recovery-10000", what="recovery after 10,000 batches (about 30,000 records)", value=median(recoveries_s), unit="s",
        note=spread(recoveries_s),
    )  # fmt: skip


def take_batches(journal: BenchJournal, batches: int) -> Shares:
    """Be a subscription's planner for some batches, and time what it waits for."""
    planner = journal.planner()
    granted = planner.next(finished=0, limit=BATCH_MESSAGES, wait_ms=1_000)
    next_ms, rows_ms = [], []
    for _ in range(batches):
        began_s = time.perf_counter()
        rows = planner.rows(granted.lease)
        asked_s = time.perf_counter()
        granted = planner.next(finished=granted.lease, limit=BATCH_MESSAGES, wait_ms=1_000)
        next_ms.append((time.perf_counter() - asked_s) * 1e3)
        rows_ms.append((asked_s - began_s) * 1e3)
        assert rows.pieces.num_rows
        assert granted.messages == BATCH_MESSAGES
    planner.leave()
    return Shares(next_ms=next_ms, rows_ms=rows_ms)


def _around(values: list[float], batch: int) -> float:
    end = min(batch + _WINDOW // 2, len(values))
    return median(values[end - _WINDOW : end])


def _recovery_s(journal: BenchJournal) -> float:
    began_s = time.perf_counter()
    pong = journal.serving()
    took_s = time.perf_counter() - began_s
    kill(pong)
    return took_s
