"""The core alone: delivering and cancelling one message that was delivered seldom, and thousands of times."""

from __future__ import annotations

import time
from collections.abc import Iterator

from spark_queue.core import commands
from tests.benchmarks.core import NOW_MS, EverythingEnters, engine_of
from tests.benchmarks.figure import Bench, Figure, median, shown, spread
from tests.benchmarks.journals import QUEUE
from tests.deciding import decide, started

MANY = 5_000
_TURN = 500


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure how much more the last deliveries of a message take than the first (1.5 times)."""
    runs = [_turns_ms() for _ in range(bench.runs)]
    ratios = [last / first for first, last in runs]
    first, last = (median(times) for times in zip(*runs, strict=True))
    yield Figure(
        row="deliveries", what=f"delivery and cancel of one message: the last {_TURN} of {MANY:,} against the first",
        value=median(ratios), unit="x", budget=1.5, note=f"{spread(ratios)}; {shown(first)} ms, then {shown(last)} ms",
    )  # fmt: skip


def _turns_ms() -> tuple[float, float]:
    """Return the median times of the first deliveries and of the last, in milliseconds."""
    engine = engine_of(EverythingEnters(), {}, until=1)
    planner = started(engine, QUEUE, "bench", max_backlog=1, now_ms=NOW_MS)
    times_ms, finished = [], 0
    for call in range(MANY):
        began_s = time.perf_counter()
        granted = decide(engine, commands.Next(**planner, call=2 + call, finished=finished, limit=1), now_ms=NOW_MS)
        finished = granted.lease
        said = commands.OutcomeRows(outcome="cancel", ranges=((0, 1),), lease=finished)
        decide(engine, commands.Settle(queue=QUEUE, outcomes=(said,)), now_ms=NOW_MS)
        engine.drain_records()
        times_ms.append((time.perf_counter() - began_s) * 1e3)
    return median(times_ms[:_TURN]), median(times_ms[-_TURN:])
