"""Memory of a coordinator process with 10 million waiting messages, above that of an idle one.

Memory is what would be free without the process (USS): what it shares with others, its libraries, comes and goes with what
else the machine does. A process is looked at twice: as it stands after it lived through everything, and as the next one stands
after it recovered the same from the log, before its upkeep begins.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import psutil

from spark_queue.core import commands
from spark_queue.protocol import wire
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import MANY_MESSAGES, QUEUE, BenchJournal, request

_MIB = 2**20

#: Messages that one lease of the scattering takes; half of them, at random, are acknowledged.
_LEASE_MESSAGES = 100_000


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure FIFO (5 MB) and half removed at random (25 MB)."""
    idle = BenchJournal(bench.place / "idle")
    idle_mib = [_recovered_mib(idle) for _ in range(bench.runs)]
    many = BenchJournal(bench.place / "many", messages=MANY_MESSAGES)
    with many.coordinator() as process:
        # Its first reign lets everything enter; the next ones only remember it.
        entered = _settled_mib(many, process) - median(idle_mib)
    fifo = [_recovered_mib(many) - median(idle_mib) for _ in range(bench.runs)]
    how = f"USS after recovery, above an idle coordinator of {median(idle_mib):.0f} MiB"
    yield Figure(
        row="memory-fifo", what="coordinator memory, 10 M waiting, FIFO", value=median(fifo), unit="MiB", budget=5,
        note=f"{spread(fifo)}; {how}; the process that let them enter stood {entered:.0f} MiB above",
    )  # fmt: skip
    with many.coordinator() as process:
        _scatter(many)
        lived = _settled_mib(many, process) - median(idle_mib)
    scattered = [_recovered_mib(many) - median(idle_mib) for _ in range(bench.runs)]
    yield Figure(
        row="memory-random", what="coordinator memory, half of 10 M removed at random", value=median(scattered),
        unit="MiB", budget=25,
        note=f"{spread(scattered)}; {how}; the process that did it stood {lived:.0f} MiB above",
    )  # fmt: skip


def _recovered_mib(journal: BenchJournal) -> float:
    with journal.coordinator() as process:
        return _settled_mib(journal, process)


def _settled_mib(journal: BenchJournal, process: psutil.Process) -> float:
    """Return the memory once everything has entered, and a few calls have warmed what every coordinator warms."""
    client = journal.client()
    for _ in range(5):
        client.call(wire.Nudge(journal=journal.journal_id, request=request(), message_type="json"))
    return float(process.memory_full_info().uss) / _MIB


def _scatter(journal: BenchJournal) -> None:
    """Acknowledge half of all messages, drawn one by one; the rest comes back when the subscription ends."""
    chance = random.Random(1)
    planner = journal.planner(subscription="scatter", ack_mode="explicit", max_backlog=MANY_MESSAGES)
    client, lease = journal.client(), 0
    for first in range(0, MANY_MESSAGES, _LEASE_MESSAGES):
        lease = planner.next(finished=lease, limit=_LEASE_MESSAGES, wait_ms=1_000).lease
        drawn = sorted(chance.sample(range(first, first + _LEASE_MESSAGES), _LEASE_MESSAGES // 2))
        outcome = commands.OutcomeRows(outcome="acknowledge", lease=lease, ranges=tuple((row, row + 1) for row in drawn))
        planner.next(finished=lease, limit=1, wait_ms=0)
        client.call(commands.Settle(journal=journal.journal_id, request=request(), queue=QUEUE, outcomes=(outcome,)))
    client.call(commands.Unsubscribe(journal=journal.journal_id, request=request(), queue=QUEUE, subscription="scatter"))
