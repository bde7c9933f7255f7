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
from spark_queue.coordinator.entering import Entrance
from spark_queue.coordinator.loop import Loop
from spark_queue.journal import control_log, delta
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.upkeep import Upkeep

#: What is timed: step -> owner and name of the function.
STEPS: dict[str, tuple[Any, str]] = {
    "group": (Loop, "step"),
    "decide": (Commands, "run"),
    "enter": (Entrance, "admit"),
    "append": (DeltaControlLog, "append"),
    "stage": (control_log, "stage_records"),
    "swap": (delta, "swap"),
    "refresh": (delta, "refresh"),
    "upkeep": (Upkeep, "run"),
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
