"""Cost of a consumer in plain Python: its import, and a receiver that waits, beside the two parts of pyarrow that it needs.

Each is a fresh process, in turns with the peer; the bytecode is there. Memory is resident (RSS), the interpreter included, and so
is the time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import QUEUE, BenchJournal

_MIB = 2**20

_IMPORT = "from spark_queue import Journal, Queue"
_PEER = "import pyarrow.parquet, pyarrow.flight"

#: Said by a process that is ready to be looked at.
_READY = "print('ready', flush=True); input()"

_RECEIVE = f"""
import sys
from spark_queue import Journal
with Journal(sys.argv[1]).queue(sys.argv[2]).receive() as messages:
    message = messages.get(30)
    message.value()
    message.acknowledge().result(30)
    {_READY}
"""


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure the import (0.3 s, 75 MiB), and a receiver."""
    programs = [f"{statement}; {_READY}" for statement in (_IMPORT, _PEER)]
    # The first turn makes the bytecode.
    turns = [[_seen(program) for program in programs] for _ in range(1 + bench.runs)]
    ours, peers = zip(*turns[1:], strict=True)
    seconds, memory = ([run[part] for run in ours] for part in (0, 1))
    peer_s, peer_mib = (median(run[part] for run in peers) for part in (0, 1))
    yield Figure(
        row="import", what=f"`{_IMPORT}`, a fresh process", value=median(seconds), unit="s", budget=0.3,
        note=f"{spread(seconds)}; `{_PEER}` takes {peer_s:.2f} s",
    )  # fmt: skip
    yield Figure(
        row="import-memory", what=f"`{_IMPORT}`, memory", value=median(memory), unit="MiB", budget=75,
        note=f"{spread(memory)}; `{_PEER}` takes {peer_mib:.0f} MiB",
    )  # fmt: skip
    journal = BenchJournal(bench.place / "journal", messages=1_000)
    with journal.coordinator():
        held = [_seen(_RECEIVE, journal.store.path, QUEUE)[1] for _ in range(bench.runs)]
    yield Figure(
        row="receiver-memory", what="a receiver that waits for its next message, memory", value=median(held), unit="MiB",
        note=f"{spread(held)}; `{_PEER}` alone takes {peer_mib:.0f} MiB",
    )  # fmt: skip


def _seen(program: str, *arguments: str) -> tuple[float, float]:
    """Return the seconds from the start of a program until it is ready, and its memory then."""
    began_s = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        took_s = time.perf_counter() - began_s
        assert said == b"ready\n", said
        memory = psutil.Process(process.pid).memory_info().rss / _MIB
        process.communicate(b"\n")
    return took_s, memory
