"""A coordinator whose steps are timed: ``python -m tests.benchmarks.timed_coordinator FILE``, orders on stdin as ever.

At its end it writes a JSON object to FILE: for each step the time of every call, in milliseconds. A step that contains
another counts that one's time too.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_queue.coordinator import __main__ as started
from spark_queue.coordinator import process
from spark_queue.coordinator.commands import Commands
from spark_queue.coordinator.loop import Loop
from spark_queue.journal import control_log, entry_writing
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.entering import Sequencer
from spark_queue.journal.upkeep import Upkeep

#: What is timed: step -> owner and name of the function.
STEPS: dict[str, tuple[Any, str]] = {
    "one group of calls": (Loop, "step"),
    "decide (engine)": (Commands, "run"),
    "read the message log": (Sequencer, "admit"),
    "append": (DeltaControlLog, "append"),
    "write the records (Parquet)": (control_log, "stage_records"),
    "write the log entry (commit)": (entry_writing, "create_entry"),
    "check the fence": (DeltaControlLog, "_check"),
    "checkpoint and clean the log": (Upkeep, "_keep_control"),
}

_times_ms: dict[str, list[float]] = defaultdict(list)


def main() -> None:
    """Time the steps of a coordinator for its whole life."""
    for step, (owner, name) in STEPS.items():
        setattr(owner, name, _timed(step, getattr(owner, name)))
    process._exit = _told(process._exit)  # type: ignore[assignment]  # The wrapper returns as little as what it wraps.
    started.main()


def _timed(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    times_ms = _times_ms[step]

    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            times_ms.append((time.perf_counter() - began_s) * 1e3)

    return timed


def _told(end: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(end)
    def told(*arguments: Any) -> None:
        Path(sys.argv[1]).write_text(json.dumps(_times_ms))
        end(*arguments)

    return told


if __name__ == "__main__":
    main()
