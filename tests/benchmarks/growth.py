"""How the time of a commit grows with the number of commits: control log, checkpoints, clean-up, compaction and snapshots alone.

No coordinator process and no wire: each commit is what a micro-batch makes, one lease proven and the next one granted, made by the
core and committed by `DeltaControlLog`; the upkeep is asked after each, as the coordinator's loop asks it. Its clock runs an hour
ahead of the disk's, so that log entries are old enough to be cleaned from the first checkpoint on.

Both journals rest before they are compared. ext4 without a journal of its own makes a new file more slowly the more files were
deleted beside it within the last six minutes (`RESULTS.md`), and whoever has just made the older journal at hundreds of commits a
second has deleted as many log entries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from spark_queue.clock import SystemClock
from spark_queue.core import commands, folds
from spark_queue.core.engine import Engine
from spark_queue.core.replies import Granted
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.open import open_journal
from tests.benchmarks.figure import Bench, Figure, median, percentile, shown
from tests.benchmarks.journals import QUEUE, SUBSCRIPTION, BenchJournal
from tests.deciding import claim, started

#: Commits of the older journal and of the younger one, and messages of each commit.
COMMITS = 100_000
EARLY = 1_000
_COMMIT_MESSAGES = 10

#: The two are compared by this many turns of commits each, one after the other: whatever else the machine does, it does to both.
_TURNS = 20
_TURN_COMMITS = 100

_AHEAD_MS = 3600 * 1000

#: As long as ext4 remembers what was deleted: its RECENTCY_MIN and RECENTCY_DIRTY together.
_REST_S = 360.0


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure once: 100,000 commits against 1,000 (1.5 times)."""
    old, young = (
        OneWriter(bench.place / name, commits, further=_TURNS * _TURN_COMMITS, ahead_ms=_AHEAD_MS)
        for name, commits in (("old", COMMITS), ("young", EARLY))
    )
    threading.Event().wait(_REST_S)
    late, early = [], []
    for _ in range(_TURNS):
        late += old.commit(_TURN_COMMITS)
        early += young.commit(_TURN_COMMITS)
    p99 = ", ".join(f"{shown(percentile(part, 0.99))} ms" for part in (early, late))
    yield Figure(
        row="commit-growth", what=f"commit time at {COMMITS:,} commits against {EARLY:,}", value=median(late) / median(early),
        unit="x", budget=1.5,
        note=f"one run, two journals by turns after a rest; p50 {shown(median(early))} ms, then {shown(median(late))} ms, "
        f"p99 {p99}; no wire; log clean-up, compaction and snapshots active",
    )  # fmt: skip


class OneWriter:
    """The one writer of a journal that has seen some commits, and will see `further` ones; its clock is `ahead_ms` ahead."""

    def __init__(self, path: Path, commits: int, *, further: int = 0, ahead_ms: int = 0) -> None:
        messages = (commits + further + 1) * _COMMIT_MESSAGES
        journal = BenchJournal(path, messages=messages)
        self.journal_id, self._ahead_ms = journal.journal_id, ahead_ms
        self._journal, self._clock, self._call, self._finished = open_journal(journal.store), SystemClock(), 1, 0
        traits = PreparedTraits(self._journal.traits)
        self._state = JournalState(traits)
        folds.fold_all(self._state, self._journal.control.load().records)
        self._engine = engine = Engine(self._state)
        now_ms = self._clock.wall_ms()
        claim(engine, epoch=1, host="here", address="none", pid=1, now_ms=now_ms)
        entrance = Sequencer(self._journal, engine, traits)
        entrance.recover()
        while entrance.admit("json", now_ms=now_ms):
            pass
        self._planner = started(engine, QUEUE, SUBSCRIPTION, max_backlog=100_000, now_ms=now_ms)
        self._journal.control.append(engine.drain_records(), epoch=1)
        self.commit(commits)

    def commit(self, commits: int) -> list[float]:
        """Return the time of each commit, in milliseconds, with what the loop does for the upkeep between two of them."""
        times_ms = []
        for _ in range(commits):
            now_ms, self._call = self._clock.wall_ms(), self._call + 1
            poll = commands.Next(**self._planner, call=self._call, finished=self._finished, limit=_COMMIT_MESSAGES)
            granted = self._engine.decide(poll, now_ms=now_ms)
            assert isinstance(granted, Granted)
            self._finished, records = granted.lease, self._engine.drain_records()
            began_s = time.perf_counter()
            self._journal.control.append(records, epoch=1)
            self._journal.upkeep(epoch=1, state=self._state, now_ms=now_ms + self._ahead_ms)
            times_ms.append((time.perf_counter() - began_s) * 1e3)
        # What was begun for one journal must not be in the way of the other.
        self._journal._upkeep.finish()
        return times_ms
