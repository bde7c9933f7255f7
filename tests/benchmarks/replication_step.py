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
from spark_queue.core import commands
from spark_queue.core.records import Kind
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.store import Store, StoredObject
from tests.benchmarks.figure import Bench, Figure, median, shown, spread
from tests.benchmarks.instances import BenchInstance
from tests.benchmarks.journals import QUEUE
from tests.sites_on_disk import DiskInstance

#: How long a peer commits, and how often in a second.
_COMMITTING_S, _COMMITS_PER_S = 20, 50
_COMMITS = _COMMITTING_S * _COMMITS_PER_S

#: How many messages enter by the first commit of a second, and how many are acknowledged by each of the others.
_ENTER, _ENDED = 500, 10

#: The default of `pull_interval`, in seconds.
_PULL_INTERVAL_S = 0.5

#: Seconds after which whoever is behind is given up; a busy machine takes long for the commits alone.
_DEADLINE_S = 5 * _COMMITTING_S

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
    there, here = BenchInstance(place, "there", ["here"]), BenchInstance(place, "here", ["there"])
    store = _SlowStore(there.store.path) if pause_s else there.store
    # Another process, so that it commits while this one reads.
    committer = multiprocessing.get_context("spawn").Process(target=_commit, args=(there.path,))
    committer.start()
    #: When which record was pulled; the watermark tells the last one.
    reached: list[tuple[int, int]] = []
    try:
        deadline_s, has_ended = time.monotonic() + _DEADLINE_S, False
        while not (has_ended and reached[-1][0] == there.records()[-1].record):
            assert time.monotonic() < deadline_s, f"{_DEADLINE_S} s are over at record {reached[-1][0]}"
            threading.Event().wait(_PULL_INTERVAL_S)
            has_ended = not committer.is_alive()
            here.pull("there", store=store)
            reached.append((here.state.pulled["there"].record, here.now_ms))
    finally:
        committer.terminate()
        committer.join()
    ended = there.records(Kind.REMOVED)
    assert here.count(State.REMOVED) == len(ended) * _ENDED == (_COMMITS - _COMMITTING_S) * _ENDED
    done_ms = next(at_ms for record, at_ms in reached if record >= ended[-1].record)
    return (done_ms - ended[-1].at_ms) / 1e3, (len(ended) - 1) / (ended[-1].at_ms - ended[0].at_ms) * 1e3


def _commit(path: Path) -> None:
    """Commit at a steady pace, as the coordinator of a busy peer does: messages enter once in a second, and others end."""
    there, never, ended = DiskInstance(path, SystemClock()), threading.Event(), 0
    began_s = time.monotonic()
    for commit in range(_COMMITS):
        never.wait(max(0.0, began_s + commit / _COMMITS_PER_S - time.monotonic()))
        if commit % _COMMITS_PER_S == 0:
            there.publish_rows(pa.table({"value": ["{}"] * _ENTER}))
        else:
            outcome = commands.OutcomeRows(outcome="acknowledge", ranges=((ended, ended + _ENDED),))
            there.decide(commands.Settle(queue=QUEUE, outcomes=(outcome,)))
            ended += _ENDED
