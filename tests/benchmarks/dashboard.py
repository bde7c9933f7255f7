"""The page: how long the first view of a large journal takes, and what one more record costs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.cookiejar import CookieJar
from typing import Any

import psutil
import pyarrow as pa

from spark_queue.client.launcher import environment
from spark_queue.clock import SystemClock
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.segment import to_record
from spark_queue.core.records import Kind, Record, Removal, Return
from spark_queue.dashboard.journal_page import PAGE_QUEUES
from spark_queue.following.follower import LOOK_S
from spark_queue.journal import snapshot
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.creation import create_journal
from spark_queue.journal.open import open_journal
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.journal.reader import open_control
from spark_queue.journal.store import Store
from spark_queue.journal.traits import FileTraits
from spark_queue.ports import entered
from tests.benchmarks.figure import Bench, Figure, median, shown, spread
from tests.benchmarks.journals import SUBSCRIPTION, counted
from tests.records import record_of

QUEUES = 100
#: Queues for which the overview has room.
SHOWN_QUEUES = min(QUEUES, PAGE_QUEUES)
#: Messages of each queue that wait, and those that were done before.
WAITING = 10_000
LEASES = 200
LEASE_MESSAGES = 10

#: Since when the journal has been there.
_PAST_MS = 3 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much a journal holds."""

    queues: int = QUEUES
    #: Of each queue.
    waiting: int = WAITING
    leases: int = LEASES
    lease_messages: int = LEASE_MESSAGES
    #: Of one commit: the log has merged files and small ones, and its snapshot is some way back, as a coordinator leaves it.
    commit_records: int = 5_000
    since_snapshot: int = 15_000
    #: Between two snapshots for past moments; 0 for none.
    stretch: int = 0


_DEADLINE_S = 120.0


class PastClock(SystemClock):
    """A clock that is some hours late."""

    def wall_ms(self) -> int:
        """Return the time, in milliseconds since 1970 UTC."""
        return super().wall_ms() - _PAST_MS


class BusyJournal:
    """A journal of many queues, each with messages that wait and leases behind it; the log goes on from `next_record`."""

    def __init__(self, bench: Bench, size: Size | None = None) -> None:
        self._size = size = size or Size()
        names = [f"Q{number:03}" for number in range(size.queues)]
        self.definitions = parsing.parse(
            {
                "message_types": {"json": {"topics": [f"T{name}" for name in names]}},
                "queues": {name: {"underlying_topic": f"T{name}"} for name in names},
            }
        )
        self.store = Store(str(bench.place / "journal"))
        journal_id = create_journal(self.store, self.definitions, clock=PastClock())
        bodies = pa.table({"value": counted(pa.array(range(size.waiting + size.leases * size.lease_messages), pa.int64()))})
        for name in names:
            plan = make_plan(self.store, self.definitions, message_type="json", topic=f"T{name}", expires_after_ms=None)
            publish(plan, journal_id, self.definitions, bodies)
        self.control = DeltaControlLog(self.store)
        begun = self.control.load().records
        self.next_record, self._first_ms, last_ms = len(begun), begun[-1].at_ms, SystemClock().wall_ms()
        records = list(self._records(names))
        self._step = (last_ms - self._first_ms) / (len(records) + 1)
        self.at_ms = self._first_ms
        snapshot_record = 0
        for first in range(0, len(records), size.commit_records):
            self._append(records[first : first + size.commit_records])
            is_near_the_end = 0 <= len(records) - self.next_record - size.since_snapshot < size.commit_records
            if is_near_the_end or (size.stretch and self.next_record - snapshot_record >= size.stretch):
                self.take_snapshot()
                snapshot_record = self.next_record
        #: How many records came after the snapshot.
        self.since_snapshot = self.next_record - snapshot_record

    def take_snapshot(self) -> None:
        """Store the state of now, as a coordinator's upkeep does."""
        snapshot.capture(self.store, open_control(self.store).blocks, FileTraits(self.store))

    def lease(self, queue: str) -> None:
        """Commit one record more: a message of a queue is given out."""
        size = self._size
        granted = {"incarnation": [1, 1], "call": size.leases + 1, "limit": 1}
        done = size.leases * size.lease_messages
        first = int(queue[1:]) * (size.waiting + done) + done
        record = record_of(
            kind=Kind.GRANTED, queue=queue, subscription=SUBSCRIPTION, lease=2 * size.leases + 1, ranges=((first, first + 1),),
            due_at_ms=self.at_ms + _PAST_MS, detail=granted,
        )  # fmt: skip
        self._step = 0
        self._append([record])

    def _append(self, records: Any) -> None:
        stamped = []
        for record in records:
            self.at_ms = int(self._first_ms + self._step * (self.next_record + 1)) if self._step else self.at_ms + 1
            stamped.append(replace(record, record=self.next_record, epoch=1, at_ms=self.at_ms))
            self.next_record += 1
        self.control.append(stamped, epoch=1)

    def _records(self, names: list[str]) -> Iterator[Record]:
        """Yield what happened: every lease ran out once, and its messages were done with the next one."""
        yield record_of(kind=Kind.EPOCH_CLAIMED, detail={"host": "h", "address": "a", "pid": 1})
        first, firsts = 0, list[int]()
        for entry in open_journal(self.store).messages("json").tail(-1):
            for added in entry.added:
                yield to_record(entered("json", entry, added, first=first, at_ms=0, since_ms=0))
                firsts.append(first)
                first += added.row_count
        asks = {"ack_mode": "auto", "max_backlog": 1_000, "filter": None}
        for name in names:
            yield record_of(kind=Kind.SUBSCRIBED, queue=name, subscription=SUBSCRIPTION, detail=asks)
        messages = self._size.lease_messages
        for number in range(self._size.leases):
            for name, start in zip(names, firsts, strict=True):
                yield from _leased_twice(name, 2 * number + 1, start + number * messages, messages)


def _leased_twice(queue: str, lease: int, row: int, messages: int) -> Iterator[Record]:
    about: dict[str, Any] = {"queue": queue, "subscription": SUBSCRIPTION, "ranges": ((row, row + messages),)}
    granted = {"incarnation": [1, 1], "call": lease, "limit": messages}
    yield record_of(kind=Kind.GRANTED, **about, lease=lease, due_at_ms=1, detail=granted)
    yield record_of(kind=Kind.RETURNED, **about, lease=lease, reason=Return.LEASE_EXPIRED)
    yield record_of(kind=Kind.GRANTED, **about, lease=lease + 1, due_at_ms=1, detail=granted)
    yield record_of(kind=Kind.REMOVED, **about, lease=lease + 1, reason=Removal.ACKNOWLEDGED)
    yield record_of(kind=Kind.PROVEN, queue=queue, subscription=SUBSCRIPTION, lease=lease + 1)


class Browser:
    """Somebody who looks at a page that was started just now."""

    def __init__(self, address: str, process: psutil.Process) -> None:
        self.base, _, self._login = address.partition("/login")
        self.process = process
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def login(self) -> str:
        """Come in as the address says, and return the first page."""
        return self._read(f"{self.base}/login{self._login}")

    def get(self, path: str) -> str:
        """Return a page."""
        return self._read(self.base + path)

    def until(self, path: str, shows: Callable[[str], bool]) -> str:
        """Read a page until it shows something; raises where it does not in time."""
        deadline_s = time.monotonic() + _DEADLINE_S
        while not shows(page := self.get(path)):
            assert time.monotonic() < deadline_s, f"after {_DEADLINE_S:g} s the page at {path} begins {page[:2_000]!r}"
            threading.Event().wait(0.005)
        return page

    def busy_s(self) -> float:
        """Return how long the page's process has computed."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def _read(self, address: str) -> str:
        with self._opener.open(address, timeout=_DEADLINE_S) as answer:
            return str(answer.read().decode())


@contextmanager
def browsing(store: Store) -> Iterator[Browser]:
    """Run `sparkq dashboard` on a journal, and look at it."""
    command = [sys.executable, "-m", "spark_queue.cli", "dashboard", store.path, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield Browser(json.loads(line)["address"], psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(_DEADLINE_S)


def is_whole(page: str) -> bool:
    """Return whether an overview shows the figures of each queue for which it has room."""
    return page.count(f'class="num">{WAITING:,}</td>') >= SHOWN_QUEUES


def has_charts(page: str) -> bool:
    """Return whether an overview shows a chart of each queue for which it has room."""
    return page.count('class="spark"') == SHOWN_QUEUES


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure with 1 million messages that wait in 100 queues, and 100,000 records; the budget of the first view is 1 s."""
    journal = BusyJournal(bench)
    views_s, charts_s, wholes_s, views_cpu_s, peers_s, peers_cpu_s = [list[float]() for _ in range(6)]
    for _ in range(bench.runs):
        began_s = time.perf_counter()
        with browsing(journal.store) as browser:
            asked_s, before_cpu_s = time.perf_counter(), browser.busy_s()
            page = browser.login()
            if not is_whole(page):
                browser.until("/", is_whole)
            views_s.append(time.perf_counter() - asked_s)
            views_cpu_s.append(browser.busy_s() - before_cpu_s)
            wholes_s.append(time.perf_counter() - began_s)
            browser.until("/", has_charts)
            charts_s.append(time.perf_counter() - asked_s)
        wall_s, cpu_s = run_sparkq("status", journal.store.path, "--json")
        peers_s.append(wall_s)
        peers_cpu_s.append(cpu_s)
    about = f"{journal.next_record:,} control records, {journal.since_snapshot:,} of them since the snapshot"
    yield Figure(
        row="dashboard", what=f"first view of the page, {QUEUES} queues with {QUEUES * WAITING / 1e6:g} M messages that wait",
        value=median(views_s), unit="s", budget=1,
        note=f"{spread(views_s, 's')}, {shown(median(views_cpu_s))} s of processor time; {about}; with charts after "
        f"{shown(median(charts_s))} s; with the start of the process {shown(median(wholes_s))} s, where `sparkq status` of the "
        f"same journal took {shown(median(peers_s))} s by turns ({shown(median(peers_cpu_s))} s of processor time)",
    )  # fmt: skip
    yield from _updates(bench, journal)


def _updates(bench: Bench, journal: BusyJournal) -> Iterator[Figure]:
    """Measure what one more record costs the page's process: to follow it, and to show it to a browser or tell it to a scrape."""
    never, paths = threading.Event(), {"dashboard-update": "/", "dashboard-scrape": "/metrics"}
    with browsing(journal.store) as browser:
        browser.login()
        browser.until("/", has_charts)
        first_cpu_s = browser.busy_s()
        browser.get("/metrics")
        first_cpu_s = browser.busy_s() - first_cpu_s
        costs_ms: dict[str, list[float]] = {row: [] for row in paths}
        queues = iter(f"Q{number:03}" for number in range(QUEUES))
        for _ in range(bench.runs):
            for row, path in paths.items():
                before_s = browser.busy_s()
                journal.lease(next(queues))
                # Longer than until its next look.
                never.wait(LOOK_S + 0.5)
                browser.get(path)
                costs_ms[row].append((browser.busy_s() - before_s) * 1e3)
    _, once_cpu_s = run_sparkq("metrics", journal.store.path)
    budgets_ms = {"dashboard-update": 100, "dashboard-scrape": 250}
    notes = {
        "dashboard-update": "followed, and the first page shown",
        "dashboard-scrape": f"followed, and told to a scrape; the first scrape took {shown(first_cpu_s)} s, and `sparkq metrics` "
        f"of the same journal {shown(once_cpu_s)} s of processor time",
    }  # fmt: skip
    for row, told in costs_ms.items():
        yield Figure(
            row=row, what="processor time of the page for one more record", value=median(told), unit="ms", budget=budgets_ms[row],
            note=f"{spread(told, 'ms')}; {notes[row]}",
        )  # fmt: skip


def run_sparkq(*arguments: str) -> tuple[float, float]:
    """Run `sparkq`; returns how long it took, and its processor time, in seconds."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "spark_queue.cli", *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment(), timeout=_DEADLINE_S, check=True)
    wall_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
