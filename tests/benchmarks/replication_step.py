"""Whether an instance stays in step with a peer that commits often, also where each request takes long."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.core.records import Kind
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.layout import Store
from spark_queue.journal.objects import StoredObject
from tests.benchmarks.figure import Bench, Figure, median, shown, spread
from tests.benchmarks.instances import BenchInstance
from tests.sites_on_disk import DiskInstance

#: How long a peer commits, how often in a second, and how many messages each time.
_COMMITTING_S, _COMMITS_PER_S, _COMMIT_ROWS = 20, 50, 10
_COMMITS = _COMMITTING_S * _COMMITS_PER_S

#: The default of `pull_interval`, in seconds.
_PULL_INTERVAL_S = 0.5

#: Seconds after which whoever is behind is given up: a busy machine takes long for the commits alone.
_DEADLINE_S = 15 * _COMMITTING_S

#: Requests that reading one file of an object store takes: its size, its footer and its rows.
_REQUESTS_PER_FILE = 3


def measure(bench: Bench) -> Iterator[Figure]:
    """Pull from a peer that commits 50 times a second: how long after its last commit all of it is here."""
    for pause_ms in (0, 50):
        found = [_behind_s(bench.place / f"{pause_ms}-{run}", pause_ms / 1e3) for run in range(bench.runs)]
        behind_s, paces = [behind_s for behind_s, _ in found], [pace for _, pace in found]
        where = f"at {pause_ms} ms a request" if pause_ms else "on disk"
        yield Figure(
            row=f"replication-step-{pause_ms}", what=f"seconds behind a peer of {_COMMITS_PER_S} commits/s, {where}",
            value=median(behind_s), unit="s", budget=2.5,
            note=f"{spread(behind_s)}, after {_COMMITS:,} commits, in truth {shown(min(paces))} a second or more",
        )  # fmt: skip


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


def _behind_s(place: Path, pause_s: float) -> tuple[float, float]:
    """Return how long after its last commit a peer is pulled to its end, in seconds, and how often in a second it committed."""
    there, here = BenchInstance(place, "there"), BenchInstance(place, "here", ["there"])
    store = _SlowStore(there.store.path) if pause_s else there.store
    # Another process, so that it commits while this one reads.
    committer = multiprocessing.get_context("spawn").Process(target=_commit, args=(there.path,))
    committer.start()
    try:
        deadline_s = time.monotonic() + _DEADLINE_S
        while here.pull("there", store=store) is None and here.count(State.REMOTE) < _COMMITS * _COMMIT_ROWS:
            assert time.monotonic() < deadline_s, f"only {here.count(State.REMOTE):,} messages were pulled in {_DEADLINE_S} s"
            threading.Event().wait(_PULL_INTERVAL_S)
        done_ms = here.now_ms
        entered_ms = [record.at_ms for record in there.records(Kind.ENTERED)]
        return (done_ms - entered_ms[-1]) / 1e3, (_COMMITS - 1) / (entered_ms[-1] - entered_ms[0]) * 1e3
    finally:
        committer.terminate()
        committer.join()


def _commit(path: Path) -> None:
    """Commit at a steady pace, as the coordinator of a peer does whose publishers are busy."""
    there, never = DiskInstance(path, SystemClock()), threading.Event()
    began_s = time.monotonic()
    for commit in range(_COMMITS):
        never.wait(max(0.0, began_s + commit / _COMMITS_PER_S - time.monotonic()))
        there.publish_rows(pa.table({"value": ["{}"] * _COMMIT_ROWS}))
