"""Many queues in one journal: what a poll of one of them takes, and new definitions of all, by a real coordinator on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from spark_queue.core import commands
from spark_queue.source.planner import QueuePlanner
from tests.benchmarks.figure import Bench, Figure, median, shown, spread
from tests.benchmarks.journals import QUEUE, TOPIC, BenchJournal

QUEUES = 10_000
TOPICS = 100

#: Polls of one run, of which every one proves a lease and is given the next.
_POLLS = 200
_POLL_MESSAGES = 10


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure with one message type and with ten: polls against those of a journal of one queue, and new definitions."""
    alone_ms: list[float] = []
    for types, queues in ((1, 0), (1, QUEUES), (10, QUEUES)):
        journal = BenchJournal(bench.place / f"types-{types}-{queues}", messages=(bench.runs + 1) * _POLLS * _POLL_MESSAGES)
        with journal.coordinator():
            client = journal.client()
            applied_s = []
            # The first lets all queues begin; each later one changes a key of all.
            for run in range(bench.runs + 1):
                began_s = time.perf_counter()
                client.call(commands.Apply(definitions=_definitions(types, queues, lease_period=f"{60 + run}s")), timeout_s=120)
                applied_s.append(time.perf_counter() - began_s)
            client.close()
            planner, finished, polled_ms = journal.planner(), 0, []
            for _ in range(bench.runs + 1):
                finished, times_ms = _poll(planner, finished)
                polled_ms.append(median(times_ms))
            planner.leave()
        if not queues:
            alone_ms = polled_ms[1:]
            continue
        what = f"{QUEUES:,} queues over {TOPICS} topics of {types} message type{'s' if types > 1 else ''}"
        yield Figure(
            row=f"many-queues-next-{types}", what=f"{what}: a poll that proves a lease and is given the next", unit="ms", budget=2,
            value=median(polled_ms[1:]), note=f"{spread(polled_ms[1:])}, each the median of {_POLLS} polls over the wire",
        )  # fmt: skip
        yield Figure(
            row=f"many-queues-ratio-{types}", what=f"{what}: a poll against one of a journal with one queue", unit="x", budget=1.25,
            value=median(polled_ms[1:]) / median(alone_ms), note=f"alone {shown(median(alone_ms))} ms ({spread(alone_ms)})",
        )  # fmt: skip
        yield Figure(
            row=f"many-queues-apply-{types}", what=f"{what}: new definitions of all", unit="s", budget=2,
            value=median(applied_s[1:]), note=f"{spread(applied_s[1:])}; the first, with which they begin: {shown(applied_s[0])} s",
        )  # fmt: skip


def _definitions(types: int, count: int, **keys: Any) -> dict[str, Any]:
    """Return the definitions of so many queues beside the one that is polled."""
    topics = [[f"T{kind}_{number}" for number in range(TOPICS // types)] for kind in range(types)]
    message_types: dict[str, Any] = {
        "json" if not kind else f"type{kind}": {"columns": "id BIGINT", "topics": of_type} for kind, of_type in enumerate(topics)
    }
    message_types["json"] = {"topics": [TOPIC, *topics[0]]}
    every = [topic for of_type in topics for topic in of_type]
    queues = {f"Q{number}": {"underlying_topic": every[number % TOPICS], **keys} for number in range(count)}
    return {
        "journal": {"coordinator_idle": "1h"},
        "message_types": message_types,
        "queues": {QUEUE: {"underlying_topic": TOPIC}, **queues},
    }


def _poll(planner: QueuePlanner, finished: int) -> tuple[int, list[float]]:
    """Return the lease that the last poll was given, and how long each took in milliseconds."""
    times_ms = []
    for _ in range(_POLLS):
        began_s = time.perf_counter()
        granted = planner.next(finished=finished, limit=_POLL_MESSAGES, wait_ms=0)
        times_ms.append((time.perf_counter() - began_s) * 1e3)
        assert granted.messages == _POLL_MESSAGES
        finished = granted.lease
    return finished, times_ms
