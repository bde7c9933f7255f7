"""Coordinators of one test session: found, so that none outlives it, and forked where many are started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from spark_queue.client import launcher
from tests.warm_processes import warm

#: The environment variable that a test session hands to every process it starts, directly or through Spark.
SESSION_VARIABLE = "SPARK_QUEUE_TEST_SESSION"

#: The environment variable that says where a process is that becomes each coordinator that is started on demand.
WARM_VARIABLE = "WARM_COORDINATORS"


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


@contextlib.contextmanager
def warm_coordinators(folder: Path) -> Iterator[None]:
    """Let coordinators that are started on demand be forked, until the end of the block, from a process that is loaded already."""
    # Its last arguments are those of a coordinator, by which what is forked from it is found.
    arguments = ("-m", "spark_queue.coordinator")
    with (
        warm("warm_coordinators", folder, *arguments, environment=launcher.environment()) as address,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(WARM_VARIABLE, address)
        yield
