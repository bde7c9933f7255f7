"""Receivers, consumers in plain Python: how many messages they settle, and how soon they have one, beside a table with SKIP LOCKED.

The peer is PostgreSQL, driven by one client that takes as many rows as are in hand, and deletes them: each by itself, or all at
once. It promises what a journal does here: what is committed survives kills, and not power loss (``fsync = off``).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from spark_queue import Journal, Queue
from spark_queue.client.coordinator_client import environment
from tests.benchmarks.figure import Bench, Figure, NotMeasuredError, median, percentile, shown, spread
from tests.benchmarks.journals import kill_serving

QUEUE, TOPIC = "WORK", "ORDERS"
BODY = {"value": '"' + "x" * 198 + '"'}

#: Messages in hand, messages of a run, and the floor of messages a second (RECEIVE 5).
IN_HAND = {1: (500, 250), 10: (5_000, 2_500), 100: (30_000, 15_000), 1_000: (60_000, 30_000)}

#: Publishes whose way is timed, and how many of the first are left out.
_WARM, _TIMED, _PAUSE_S = 20, 200, 0.02

_DEADLINE_S = 120.0
_IDLE_S = 20.0


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure messages settled a second by one receiver with 1 to 1,000 messages in hand, and by four with 100 each."""
    for in_hand, (messages, budget) in IN_HAND.items():
        rates = []
        for run in range(bench.runs):
            with _journal(bench.place / f"hand-{in_hand}-{run}", messages) as queue:
                rates.append(_rate(queue, messages, in_hand))
        what = f"messages settled a second by one receiver with {in_hand:,} in hand"
        note = f"{spread(rates)}; {_beside(bench, in_hand, messages)}"
        yield Figure(row=f"receive-{in_hand}", what=what, value=median(rates), unit="/s", budget=budget, at_least=True, note=note)
    rates, messages = [], 60_000
    for run in range(bench.runs):
        with _journal(bench.place / f"four-{run}", messages) as queue:
            rates.append(_rate(queue, messages, 100, receivers=4))
    what = "messages settled a second by four receivers, with 100 in hand each"
    yield Figure(row="receive-four", what=what, value=median(rates), unit="/s", budget=30_000, at_least=True, note=spread(rates))


def latency(bench: Bench) -> Iterator[Figure]:
    """Measure the time from a publish's begin until the function begins, and until its acknowledgement is durable."""
    handled: list[list[float]] = []
    acknowledged: list[list[float]] = []
    for run in range(bench.runs):
        with _journal(bench.place / f"latency-{run}", 0) as queue:
            begun_ms, done_ms = _times_ms(queue)
            handled.append(begun_ms)
            acknowledged.append(done_ms)
    for row, what, runs, budget in (
        ("receive-handler", "publish begun until its function begins", handled, 6),
        ("receive-acknowledged", "publish begun until its acknowledgement is durable", acknowledged, 10),
    ):
        p50s, p99s = [median(each) for each in runs], [percentile(each, 0.99) for each in runs]
        note = f"{spread(p50s, 'ms')}; p99 {shown(median(p99s))} ms"
        yield Figure(row=row, what=f"{what}, p50", value=median(p50s), unit="ms", budget=budget, note=note)


def idle(bench: Bench) -> Iterator[Figure]:
    """Measure what a receiver costs that waits: processor time a second, and memory."""
    busy_ms, sizes_mib = [], []
    for run in range(bench.runs):
        with _journal(bench.place / f"idle-{run}", 0) as queue:
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


@contextmanager
def _journal(place: Path, messages: int) -> Iterator[Queue]:
    """Yield a queue with messages, whose coordinator serves."""
    definitions = {"message_types": {"json": {"topics": [TOPIC]}}, "queues": {QUEUE: {"underlying_topic": TOPIC}}}
    journal = Journal.create(str(place), definitions)
    for first in range(0, messages, 10_000):
        journal.publish([BODY] * min(10_000, messages - first), topic=TOPIC)
    queue = journal.queue(QUEUE)
    queue.unpause()
    try:
        yield queue
    finally:
        kill_serving(journal)


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


def _times_ms(queue: Queue) -> tuple[list[float], list[float]]:
    """Return for each of some publishes when its function began, and when its acknowledgement was durable, in milliseconds."""
    began_s: dict[int, float] = {}
    begun_ms, done_ms = list[float](), list[float]()
    with queue.receive(max_backlog=1) as received:
        for turn in range(_WARM + _TIMED):
            threading.Event().wait(_PAUSE_S)
            began_s[turn] = time.perf_counter()
            queue.journal.publish([BODY], topic=TOPIC)  # type: ignore[attr-defined]  # A handle of users' is a journal.
            message = received.get(_DEADLINE_S)
            assert message is not None
            handed_s = time.perf_counter()
            message.acknowledge().result(_DEADLINE_S)
            if turn >= _WARM:
                begun_ms.append((handed_s - began_s[turn]) * 1e3)
                done_ms.append((time.perf_counter() - began_s[turn]) * 1e3)
    return begun_ms, done_ms


def _beside(bench: Bench, in_hand: int, messages: int) -> str:
    """Return what a table with SKIP LOCKED does of the same, in the same minutes, as a note."""
    try:
        with _postgres(bench.place / f"postgres-{in_hand}") as ask:
            one = _skip_locked(ask, messages=min(messages, 2_000), in_hand=in_hand, at_once=False)
            all_at_once = _skip_locked(ask, messages=messages, in_hand=in_hand, at_once=True)
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


@contextmanager
def _postgres(place: Path) -> Iterator[Callable[[str], None]]:
    """Yield a client of a server of its own; it sends each statement by itself."""
    if shutil.which("initdb") is None or shutil.which("psql") is None:
        raise NotMeasuredError("PostgreSQL is not installed here")
    place.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # It refuses to run as root.
    as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(place, "nobody", "nogroup")
        for parent in place.parents:
            with suppress(PermissionError):
                parent.chmod(parent.stat().st_mode | 0o011)
    data, options = place / "data", f"-p {port} -k {place} -c fsync=off -c listen_addresses=127.0.0.1"

    def run(*words: str) -> None:
        subprocess.run([*as_user, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    run("initdb", "-D", str(data), "-U", "bench", "--auth=trust")
    run("pg_ctl", "-D", str(data), "-o", options, "-w", "start", "-l", str(place / "log"))

    def ask(text: str) -> None:
        # One statement a line: psql sends, and commits, each by itself.
        command = ["psql", "-h", "127.0.0.1", "-p", port, "-U", "bench", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-f", "-"]
        subprocess.run(command, input=text.replace(";", ";\n"), text=True, check=True, stdout=subprocess.DEVNULL)

    try:
        yield ask
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
