"""Looking at a journal with millions of control records: what comes after a snapshot is read, and little else."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from spark_queue.client.launcher import environment
from spark_queue.journal.open import open_journal
from spark_queue.journal.snapshot import PAST_KEPT
from spark_queue.views import queue_status, state_at
from tests.benchmarks.dashboard import BusyJournal, Size, browsing
from tests.benchmarks.figure import Bench, Figure, median, shown, spread

#: Two million records: each of 20 queues had 20,000 leases that ran out once, and a snapshot for past moments of each stretch.
SIZE = Size(
    queues=20, waiting=1_000, leases=20_000, lease_messages=2, commit_records=20_000, since_snapshot=20_000,
    stretch=2_000_000 // PAST_KEPT,
)  # fmt: skip
QUEUE = "Q000"

#: What each command takes behind the journal's path.
COMMANDS = {"status": ["--json"], "peek": [QUEUE, "--json"], "metrics": [], "dead-letters": [QUEUE, "--json"]}


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure with 2 million records, 20,000 of them since the snapshot.

    The budgets are 2 s and 300 MiB for each command, 2 s and 500 MiB for the page, and 3 s for a past moment.
    """
    journal = BusyJournal(bench, SIZE)
    about = f"{journal.next_record:,} control records, {journal.since_snapshot:,} of them since the snapshot"
    for command, more in COMMANDS.items():
        runs = [_run(command, journal.store.path, *more) for _ in range(bench.runs)]
        yield from _figures(f"looking-{command}", f"`sparkq {command}`", runs, most_mib=300, about=about)
    pages = []
    for _ in range(bench.runs):
        with browsing(journal.store) as browser:
            began_s = time.perf_counter()
            browser.login()
            browser.until("/", lambda page: page.count(f'class="num">{SIZE.waiting:,}</td>') >= SIZE.queues)
            view_s = time.perf_counter() - began_s
            browser.until("/", lambda page: page.count('class="spark"') == SIZE.queues)
            pages.append((view_s, _peak_mib(browser.process.pid)))
    yield from _figures("looking-page", "first view of the page, and its memory with charts", pages, most_mib=500, about=about)
    yield from _past(bench, journal, about)


def _figures(row: str, what: str, runs: list[tuple[float, float]], *, most_mib: float, about: str) -> Iterator[Figure]:
    walls_s, peaks_mib = zip(*runs, strict=True)
    yield Figure(row=row, what=what, value=median(walls_s), unit="s", budget=2, note=f"{spread(walls_s, 's')}; {about}")
    yield Figure(
        row=f"{row}-memory", what=what, value=median(peaks_mib), unit="MiB", budget=most_mib, note=spread(peaks_mib, "MiB")
    )  # fmt: skip


def _past(bench: Bench, journal: BusyJournal, about: str) -> Iterator[Figure]:
    """Measure moments all over the log, the worst of which counts."""
    opened, times_s = open_journal(journal.store), []
    numbers = np.linspace(journal.next_record // 20, journal.next_record - 1, max(3, bench.runs)).astype(np.int64)
    for record in opened.record_rows().records(numbers):
        began_s = time.perf_counter()
        queue_status(state_at(opened, datetime.fromtimestamp(record.at_ms / 1_000, UTC)), QUEUE)
        times_s.append(time.perf_counter() - began_s)
    note = f"the longest of {len(times_s)} moments all over the log, the median {shown(median(times_s))} s; {about}"
    yield Figure(row="looking-past", what="status of a queue at a past moment", value=max(times_s), unit="s", budget=3, note=note)


def _run(*arguments: str) -> tuple[float, float]:
    """Run `sparkq`; returns how long it took, in seconds, and the most memory that it had, in MiB."""
    began_s, peak_mib = time.perf_counter(), 0.0
    command = [sys.executable, "-m", "spark_queue.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment()) as process:
        # What the system says when a child has ended counts the memory of whoever forked it, too.
        while process.poll() is None:
            peak_mib = _peak_mib(process.pid) or peak_mib
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
    assert process.returncode == 0
    return time.perf_counter() - began_s, peak_mib


def _peak_mib(pid: int) -> float:
    """Return the most memory that a process has had; 0 when it is about to end."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM")), 0.0)
