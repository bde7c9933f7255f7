"""Entering: from the message log on disk to messages that are available and durable so."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from spark_queue.clock import SystemClock
from spark_queue.core import folds
from spark_queue.core.engine import Engine
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import CONTROL, Store
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import COMMIT_MESSAGES, MANY_MESSAGES, QUEUE, SELECTED_MESSAGES, SELECTIVE, BenchJournal, orders
from tests.deciding import claim


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure 10 million messages of 100 commits, without a filter; the budget is 1 s."""
    journal = BenchJournal(bench.place / "journal", messages=MANY_MESSAGES)
    times_s, _ = _times_s(bench, journal, available=MANY_MESSAGES)
    yield Figure(
        row="entering", what="entering 10 M messages without filter, until durable", value=median(times_s), unit="s", budget=1,
        note=f"{spread(times_s)}; {MANY_MESSAGES // COMMIT_MESSAGES} commits",
    )  # fmt: skip


def measure_expressions(bench: Bench) -> Iterator[Figure]:
    """Measure 10 million messages with a JSON filter on two fields and a JSON priority; the budget is 6 s."""
    journal = BenchJournal(bench.place / "journal", messages=MANY_MESSAGES, queue=SELECTIVE, bodies=orders)
    times_s, cpu_s = _times_s(bench, journal, available=SELECTED_MESSAGES)
    yield Figure(
        row="entering-expressions", what="entering 10 M messages with JSON filter on two fields and JSON priority, until durable",
        value=median(times_s), unit="s", budget=6,
        note=f"{spread(times_s)}; {median(cpu_s):.1f} s of CPU time; {MANY_MESSAGES // COMMIT_MESSAGES} commits",
    )  # fmt: skip


def _times_s(bench: Bench, journal: BenchJournal, *, available: int) -> tuple[list[float], list[float]]:
    """Enter everything again and again; give wall and CPU times of the runs, in seconds."""
    control = Path(journal.store.path) / CONTROL
    pristine = bench.place / "control"
    shutil.copytree(control, pristine)
    times_s, cpu_s = [], []
    for _ in range(bench.runs):
        shutil.rmtree(control)
        shutil.copytree(pristine, control)
        began_s = time.process_time()
        times_s.append(_enter_s(journal.store, available=available))
        cpu_s.append(time.process_time() - began_s)
    return times_s, cpu_s


def _enter_s(store: Store, *, available: int) -> float:
    """Return the time from a coordinator's look at the log to the commit of what it found, in seconds."""
    opened = open_journal(store)
    traits = PreparedTraits(opened.traits)
    state = JournalState(traits)
    folds.fold_all(state, opened.control.load().records)
    engine = Engine(state)
    now_ms = SystemClock().wall_ms()
    # The first commit of a process is slow, and a reign's claim pays for it.
    claim(engine, epoch=1, host="here", address="none", pid=1, now_ms=now_ms)
    opened.control.append(engine.drain_records(), epoch=1)
    entrance = Sequencer(opened, engine, traits)
    entrance.recover()
    began_s = time.perf_counter()
    while entrance.admit("json", now_ms=now_ms):
        pass
    opened.control.append(engine.drain_records(), epoch=1)
    took_s = time.perf_counter() - began_s
    assert not entrance.trouble
    assert len(state.queues[QUEUE].rows[State.AVAILABLE]) == available
    return took_s
