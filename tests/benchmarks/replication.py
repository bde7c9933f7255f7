"""Replicated queues: what it costs to pull, to be mirrored, and to remember what others said (DESIGN 17)."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from order_file import ORDERS_CSV, read_lines
from spark_queue import Journal
from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.layout import Store
from spark_queue.journal.objects import StoredObject
from tests.benchmarks.core import EverythingEnters, lease_s
from tests.benchmarks.figure import Bench, Figure, median, shown, spread
from tests.benchmarks.instances import BenchInstance
from tests.benchmarks.journals import COMMIT_MESSAGES, MANY_MESSAGES, QUEUE, kill, kill_serving, serving
from tests.benchmarks.throughput import FILE_LINES, REPEATS, STORED

#: How long a peer commits, and how often in a second.
_COMMITTING_S = 20
_COMMITS_PER_S = 50

#: Requests that reading one file of an object store takes: its size, its footer and its rows.
_REQUESTS_PER_FILE = 3

#: Messages that each of three peers lived through, or one instance alone three times; a commit for each 200 of them.
_LIVED_MESSAGES = 200_000

#: Powers by which the time to pull may grow: with messages it is in step with them, and so it is with those who are pulled.
_BUDGETS = {"messages": 1.0, "peers": 1.2}


def pulling(bench: Bench) -> Iterator[Figure]:
    """Pull 2.1 million real order lines in files of 50,000; the budget is 300,000 lines/s."""
    rates = []
    lines = pa.concat_tables([read_lines(ORDERS_CSV)] * REPEATS)
    for run in range(bench.runs):
        there, here = _pair(bench.place / f"run-{run}", columns=STORED)
        for first in range(0, lines.num_rows, FILE_LINES):
            there.publish(lines.slice(first, FILE_LINES))
        rates.append(lines.num_rows / here.pull("there"))
        assert here.count(State.REMOTE) == lines.num_rows
    yield Figure(
        row="replication-pull", what="pulling real order lines", value=median(rates), unit="lines/s", budget=300_000, at_least=True,
        note=f"{spread(rates)}; files of {FILE_LINES:,} lines; read, written anew, committed and entered",
    )  # fmt: skip


def backlog(bench: Bench) -> Iterator[Figure]:
    """Pull 10 million messages of which half, drawn one by one, are acknowledged; the budget is 60 s."""
    there = BenchInstance(bench.place, "there", [])
    there.publish_numbers(MANY_MESSAGES)
    for drawn in _halves():
        ranges = tuple((row, row + 1) for row in drawn)
        there.decide(commands.Settle(queue=QUEUE, outcomes=(commands.OutcomeRows(outcome="acknowledge", ranges=ranges),)))
    times_s = []
    for run in range(bench.runs):
        here = BenchInstance(bench.place, f"here_{run}", ["there"])
        times_s.append(here.pull("there"))
        assert here.count(State.REMOTE) == MANY_MESSAGES // 2
    yield Figure(
        row="replication-backlog", what="pulling 10 M messages, half of them acknowledged at random", value=median(times_s),
        unit="s", budget=60, note=spread(times_s),
    )  # fmt: skip


def curves(bench: Bench) -> Iterator[Figure]:
    """Measure how the cost of pulling grows with messages, and with the number of peers, who all pull from each other."""
    points = []
    for size in (100_000, 1_000_000, 10_000_000):
        there, here = _pair(bench.place / f"messages-{size}")
        there.publish_numbers(size)
        points.append((size, here.pull("there")))
    yield _growth("messages", points)
    yield _growth("peers", [(count - 1, _all_pull_s(bench.place / f"instances-{count}", count)) for count in (2, 4, 8)])


def in_step(bench: Bench) -> Iterator[Figure]:
    """Pull from a peer that commits 50 times a second, on disk and where each request takes 50 ms: seconds behind at its end."""
    for pause_ms in (0, 50):
        behind_s = [_behind_s(bench.place / f"{pause_ms}-{run}", pause_ms / 1e3) for run in range(bench.runs)]
        where = f"at {pause_ms} ms a request" if pause_ms else "on disk"
        yield Figure(
            row=f"replication-step-{pause_ms}", what=f"seconds behind a peer of {_COMMITS_PER_S} commits/s, {where}",
            value=median(behind_s), unit="s", budget=2.5, note=f"{spread(behind_s)}, after {_COMMITTING_S} s",
        )  # fmt: skip


def core(bench: Bench) -> Iterator[Figure]:
    """Grant and acknowledge some of 10 million, replicated against not, by turns; the budget is 10%."""
    for limit in (100_000, 100):
        pairs = [[lease_s(limit, EverythingEnters(), peer=peer) for peer in (None, "there")] for _ in range(bench.runs)]
        yield Figure(
            row=f"replication-core-{limit}", what=f"core: grant + acknowledge {limit:,} of 10 M, replicated against not",
            value=median(shared_s / alone_s for alone_s, shared_s in pairs), unit="x", budget=1.1,
            note=f"{spread([shared_s / alone_s for alone_s, shared_s in pairs])}; alone {shown(pairs[0][0] * 1e3)} ms",
        )  # fmt: skip


def memory(bench: Bench) -> Iterator[Figure]:
    """Hold 10 million mirrored messages, half of them transferred at random, against as many that nobody shares (1.25 times)."""
    alone = BenchInstance(bench.place, "alone", [])
    alone.publish_numbers(MANY_MESSAGES)
    # Who gives messages away shares the queue, too.
    there, here = (BenchInstance(bench.place, name, [other]) for name, other in (("there", "here"), ("here", "there")))
    there.publish_numbers(MANY_MESSAGES)
    for drawn in _halves():
        detail = {"requester": "here", "owner": "there", "passed": []}
        rows = {there.journal_id: to_bitmap([(row, row + 1) for row in drawn])}
        news = News(queue=QUEUE, message_type="json", rows=rows, value=None, detail=detail)
        there.engine.pull(Pulled(peer="here", journal=here.journal_id, record=-1, digest="", news=[news]), now_ms=there.now_ms)
        there.commit()
    here.pull("there")
    assert here.count(State.AVAILABLE) == MANY_MESSAGES // 2
    sizes = {name: [_recovered_mib(bench.place / name) for _ in range(bench.runs)] for name in ("alone", "here")}
    ratio = median(sizes["here"]) / median(sizes["alone"])
    yield Figure(
        row="replication-memory", what="coordinator memory, 10 M mirrored messages, half transferred at random, against unshared",
        value=ratio, unit="x", budget=1.25,
        note=f"RSS {shown(median(sizes['here']))} MiB against {shown(median(sizes['alone']))} MiB",
    )  # fmt: skip


def recovery(bench: Bench) -> Iterator[Figure]:
    """Fold a log with the news of three peers, against one of as many messages and outcomes of its own (1.5 times)."""
    alone, others = BenchInstance(bench.place, "alone", []), ["one", "two", "three"]
    here = BenchInstance(bench.place, "here", others)
    for instance in (alone, *(BenchInstance(bench.place, name, []) for name in others)):
        for _ in range(3 if instance is alone else 1):
            _live(instance)
    for name in others:
        here.pull(name)
    times_s = {each.name: [each.begin_reign() for _ in range(bench.runs)] for each in (alone, here)}
    yield Figure(
        row="replication-recovery", what="recovery with the news of three peers, against as many records of its own",
        value=median(times_s["here"]) / median(times_s["alone"]), unit="x", budget=1.5,
        note=f"{shown(median(times_s['here']))} s against {shown(median(times_s['alone']))} s, no snapshot",
    )  # fmt: skip


def _pair(place: Path, *, columns: str | None = None) -> tuple[BenchInstance, BenchInstance]:
    return BenchInstance(place, "there", [], columns=columns), BenchInstance(place, "here", ["there"], columns=columns)


def _halves() -> Iterator[list[int]]:
    """Yield half of each 100,000 messages, drawn one by one."""
    chance = random.Random(1)
    for first in range(0, MANY_MESSAGES, COMMIT_MESSAGES):
        yield sorted(chance.sample(range(first, first + COMMIT_MESSAGES), COMMIT_MESSAGES // 2))


def _live(instance: BenchInstance) -> None:
    """Publish messages, and acknowledge every other hundred of them."""
    begins = instance.engine.state.message_types["json"].entered_until
    instance.publish_numbers(_LIVED_MESSAGES)
    for first in range(begins, begins + _LIVED_MESSAGES, 200):
        outcome = commands.OutcomeRows(outcome="acknowledge", ranges=((first, first + 100),))
        instance.decide(commands.Settle(queue=QUEUE, outcomes=(outcome,)))


def _growth(of: str, points: Sequence[tuple[int, float]]) -> Figure:
    (low, low_s), (high, high_s) = points[-2:]
    slope = math.log(high_s / low_s) / math.log(high / low)
    note = ", ".join(f"{size:,}: {shown(seconds)} s" for size, seconds in points)
    what = f"growth of the time to pull with the number of {of}, as a power of it"
    return Figure(row=f"replication-curve-{of}", what=what, value=slope, unit="", budget=_BUDGETS[of], note=note)


def _all_pull_s(place: Path, count: int) -> float:
    """Return how long one instance of several takes to pull all others, who have pulled each other, in seconds."""
    names = [f"i{number}" for number in range(count)]
    world = [BenchInstance(place, name, [each for each in names if each != name]) for name in names]
    for instance in world:
        instance.publish_numbers(COMMIT_MESSAGES)
    for _ in range(2):
        for instance in world[1:]:
            for name in names[1:]:
                if name != instance.name:
                    instance.pull(name)
    return sum(world[0].pull(name) for name in names[1:])


class _SlowStore(Store):
    """A store each of whose requests takes a while."""

    pause_s = 0.05

    def read(self, key: str, *, most_bytes: int | None = None) -> bytes | None:
        threading.Event().wait(self.pause_s)
        return super().read(key, most_bytes=most_bytes)

    def list(self, prefix: str, *, after: str | None = None) -> list[StoredObject]:
        threading.Event().wait(self.pause_s)
        return super().list(prefix, after=after)

    def open(self, key: str) -> Any:
        threading.Event().wait(_REQUESTS_PER_FILE * self.pause_s)
        return super().open(key)


def _behind_s(place: Path, pause_s: float) -> float:
    """Return how long it takes to pull what is left when a peer ends that has committed for a while, in seconds."""
    there, here = _pair(place)
    arguments = [there.store.path, str(_COMMITTING_S * _COMMITS_PER_S), str(1_000 // _COMMITS_PER_S)]
    publisher = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.small_commits", *arguments])
    store = _SlowStore(there.store.path) if pause_s else None
    try:
        while publisher.poll() is None:
            here.pull("there", store)
        assert publisher.returncode == 0
        behind_s = here.pull("there", store)
        assert here.count(State.REMOTE) >= _COMMITTING_S * _COMMITS_PER_S
        return behind_s
    finally:
        publisher.kill()
        kill_serving(Journal(there.store.path))


def _recovered_mib(place: Path) -> float:
    """Return the memory of a coordinator that has just recovered, in MiB."""
    journal = Journal(str(place))
    pong = serving(journal.store, journal.journal_id())
    try:
        return float(psutil.Process(pong.pid).memory_info().rss) / 2**20
    finally:
        kill(pong)
