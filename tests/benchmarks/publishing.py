"""Publishing one message at a time from Python: in a row, and from many tasks or threads at once, which share commits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from spark_queue import Journal
from tests.benchmarks.figure import Bench, Figure, median, shown, spread
from tests.benchmarks.journals import TOPIC

#: Publishes of one run, one after the other, and at once; and the threads that make them at once.
SINGLE = 1_000
GROUPED = 20_000
THREADS = 64

#: One message: its body is JSON of 200 bytes.
_MESSAGE = [{"text": "x" * 189}]


class _Run(NamedTuple):
    rate: float
    #: Of this process, for each publish.
    cpu_ms: float
    commits: int


def single(bench: Bench) -> Iterator[Figure]:
    """Measure publishes one after the other (400/s, 2 ms of CPU each), by a handle that keeps nothing itself."""

    def publish(journal: Journal) -> None:
        for _ in range(SINGLE):
            journal.publish(_MESSAGE, topic=TOPIC)

    what = "publishes of one message of 200 B, one after the other"
    yield from _figures("publish-single", what, _runs(bench, publish, SINGLE), rate=400, cpu_ms=2)


def grouped(bench: Bench) -> Iterator[Figure]:
    """Measure publishes that tasks of an event loop await at once (5,000/s), and those of as many threads as a server has."""

    def by_tasks(journal: Journal) -> None:
        async def publish() -> None:
            await asyncio.gather(*(journal.publish_async(_MESSAGE, topic=TOPIC) for _ in range(GROUPED)))

        asyncio.run(publish())

    def by_threads(journal: Journal) -> None:
        def publish(_: int) -> None:
            for _ in range(GROUPED // THREADS):
                journal.publish(_MESSAGE, topic=TOPIC)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(publish, range(THREADS)))

    what = f"publishes of one message of 200 B, {GROUPED:,} tasks at once"
    yield from _figures("publish-grouped", what, _runs(bench, by_tasks, GROUPED), rate=5_000)
    what = f"publishes of one message of 200 B, by {THREADS} threads"
    yield from _figures("publish-threads", what, _runs(bench, by_threads, GROUPED // THREADS * THREADS))


def _figures(row: str, what: str, runs: list[_Run], *, rate: float | None = None, cpu_ms: float | None = None) -> Iterator[Figure]:
    rates, cpus_ms = [run.rate for run in runs], [run.cpu_ms for run in runs]
    note = f"{spread(rates)}; {shown(median(run.commits for run in runs))} commits; durability os, no coordinator"
    yield Figure(row=row, what=what, value=median(rates), unit="/s", budget=rate, at_least=True, note=note)
    yield Figure(
        row=f"{row}-cpu", what=f"CPU of each, {what}", value=median(cpus_ms), unit="ms", budget=cpu_ms, note=spread(cpus_ms)
    )


def _runs(bench: Bench, publish: Callable[[Journal], None], publishes: int) -> list[_Run]:
    return [_run(bench, number, publish, publishes) for number in range(bench.runs)]


def _run(bench: Bench, number: int, publish: Callable[[Journal], None], publishes: int) -> _Run:
    journal = Journal.create(str(bench.place / f"{publish.__name__}-{number}"), {"message_types": {"json": {"topics": [TOPIC]}}})
    # The first one opens the journal.
    begun = journal.publish(_MESSAGE, topic=TOPIC)
    before_s, cpu_s = time.perf_counter(), time.process_time()
    publish(journal)
    elapsed_s, cpu_s = time.perf_counter() - before_s, time.process_time() - cpu_s
    last = journal.publish(_MESSAGE, topic=TOPIC)
    assert begun.version is not None
    assert last.version is not None
    return _Run(publishes / elapsed_s, cpu_s / publishes * 1_000, last.version - begun.version - 1)
