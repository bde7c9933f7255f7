"""Receivers, consumers in plain Python: how many messages they settle, beside a table with SKIP LOCKED.

The peer is driven by one client that takes as many rows as are in hand, and deletes them: each by itself, or all at once.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from spark_queue import Queue
from spark_queue.client.launcher import environment
from tests.benchmarks.figure import Bench, Figure, NotMeasuredError, median, shown, spread
from tests.benchmarks.journals import QUEUE, serving_queue
from tests.benchmarks.postgres import postgres

#: Messages in hand, messages of a run, and the floor of messages a second (RECEIVE 5).
IN_HAND = {1: (500, 250), 10: (5_000, 2_500), 100: (30_000, 15_000), 1_000: (60_000, 30_000)}

_DEADLINE_S = 120.0
_IDLE_S = 20.0


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure messages settled a second by one receiver with 1 to 1,000 messages in hand, and by four with 100 each."""
    for in_hand, (messages, budget) in IN_HAND.items():
        rates = []
        for run in range(bench.runs):
            with serving_queue(bench.place / f"hand-{in_hand}-{run}", messages) as queue:
                rates.append(_rate(queue, messages, in_hand))
        what = f"messages settled a second by one receiver with {in_hand:,} in hand"
        note = f"{spread(rates)}; {_beside(bench, in_hand, messages)}"
        yield Figure(row=f"receive-{in_hand}", what=what, value=median(rates), unit="/s", budget=budget, at_least=True, note=note)
    rates, messages = [], 60_000
    for run in range(bench.runs):
        with serving_queue(bench.place / f"four-{run}", messages) as queue:
            rates.append(_rate(queue, messages, 100, receivers=4))
    what = "messages settled a second by four receivers, with 100 in hand each"
    yield Figure(row="receive-four", what=what, value=median(rates), unit="/s", budget=30_000, at_least=True, note=spread(rates))


def idle(bench: Bench) -> Iterator[Figure]:
    """Measure what a receiver costs that waits: processor time a second, and memory."""
    busy_ms, sizes_mib = [], []
    for run in range(bench.runs):
        with serving_queue(bench.place / f"idle-{run}", 0) as queue:
            script = (
                "import sys; from spark_queue import Journal\n"
                f"with Journal(sys.argv[1]).queue({QUEUE!r}).receive() as messages:\n"
                "    print('begun', flush=True); messages.get()\n"
            )
            command = [shutil.which("python") or "python", "-c", script, queue.journal.store.path]
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
                assert process.stdout is not None
                process.stdout.readline()
                watched = psutil.Process(process.pid)
                threading.Event().wait(3)
                before_s = sum(watched.cpu_times()[:2])
                threading.Event().wait(_IDLE_S)
                busy_ms.append((sum(watched.cpu_times()[:2]) - before_s) / _IDLE_S * 1e3)
                sizes_mib.append(watched.memory_info().rss / 2**20)
                process.kill()
    yield Figure(
        row="receive-idle-cpu", what="processor time of an idle receiver for each second", value=median(busy_ms), unit="ms",
        budget=2, note=spread(busy_ms, "ms"),
    )  # fmt: skip
    yield Figure(
        row="receive-idle-memory", what="memory of an idle receiver's process", value=median(sizes_mib), unit="MiB", budget=90,
        note=spread(sizes_mib, "MiB"),
    )  # fmt: skip


def _rate(queue: Queue, messages: int, in_hand: int, *, receivers: int = 1) -> float:
    """Return how many messages are settled a second, from when all receivers have begun until the last answer."""
    ready = threading.Barrier(receivers + 1)
    ends_s, trouble = list[float](), list[BaseException]()

    def run() -> None:
        try:
            with queue.receive(max_backlog=in_hand, wait="1s") as received:
                ready.wait(_DEADLINE_S)
                ended_s = time.perf_counter()
                for message in received:
                    last = message.acknowledge()
                    if in_hand == 1:
                        last.result(_DEADLINE_S)
                    ended_s = time.perf_counter()
                ends_s.append(ended_s)
        except BaseException as raised:  # noqa: BLE001 - whoever waits has to learn of it.
            trouble.append(raised)

    threads = [threading.Thread(target=run) for _ in range(receivers)]
    for each in threads:
        each.start()
    ready.wait(_DEADLINE_S)
    began_s = time.perf_counter()
    for each in threads:
        each.join()
    if trouble:
        raise trouble[0]
    return messages / (max(ends_s) - began_s)


def _beside(bench: Bench, in_hand: int, messages: int) -> str:
    """Return what a table with SKIP LOCKED does of the same, in the same minutes, as a note."""
    try:
        with postgres(bench.place / f"postgres-{in_hand}") as server:
            one = _skip_locked(server.ask, messages=min(messages, 2_000), in_hand=in_hand, at_once=False)
            all_at_once = _skip_locked(server.ask, messages=messages, in_hand=in_hand, at_once=True)
    except NotMeasuredError as reason:
        return str(reason)
    return f"SKIP LOCKED on PostgreSQL {shown(one)}/s with a DELETE for each, {shown(all_at_once)}/s with one for all in hand"


def _skip_locked(ask: Callable[[str], Any], *, messages: int, in_hand: int, at_once: bool) -> float:
    """Return how many messages a client settles a second that takes, and deletes, as many as it has in hand."""
    ask("DROP TABLE IF EXISTS work; CREATE TABLE work (id BIGINT PRIMARY KEY, body TEXT)")
    ask(f"INSERT INTO work SELECT number, repeat('x', 200) FROM generate_series(1, {messages}) AS number; ANALYZE work")
    took = f"SELECT id FROM work ORDER BY id LIMIT {in_hand} FOR UPDATE SKIP LOCKED"
    if at_once:
        turn = f"DELETE FROM work WHERE id IN ({took});"
        script = turn * (messages // in_hand)
    else:
        script = "".join(
            f"BEGIN; {took}; COMMIT;" + "".join(f"DELETE FROM work WHERE id = {first + each};" for each in range(1, in_hand + 1))
            for first in range(0, messages, in_hand)
        )
    began_s = time.perf_counter()
    ask(script)
    return messages / (time.perf_counter() - began_s)
