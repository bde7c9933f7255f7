"""Finds the coordinators that one test session started, so that none outlives it."""

from __future__ import annotations

from itertools import pairwise

import psutil

#: The environment variable that a test session hands to every process it starts, directly or through Spark.
SESSION_VARIABLE = "SPARK_QUEUE_TEST_SESSION"


def coordinators_of(session: str) -> list[psutil.Process]:
    """List the living coordinator processes that carry a session's mark; others' processes are not looked into."""
    return [
        process
        for process in psutil.process_iter()
        if _is_coordinator(process) and _environment(process).get(SESSION_VARIABLE) == session
    ]


def starter_of(process: psutil.Process) -> str:
    """Name the test under which a process was started, as pytest wrote it into the environment."""
    return _environment(process).get("PYTEST_CURRENT_TEST", "no test")


def _is_coordinator(process: psutil.Process) -> bool:
    try:
        arguments = process.cmdline()
    except psutil.Error:
        return False
    return any(pair == ("-m", "spark_queue.coordinator") for pair in pairwise(arguments))


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}
