"""The search for left coordinators finds what a session started, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.coordinator_processes import SESSION_VARIABLE, coordinators_of, starter_of

SESSION = str(uuid.uuid4())


def start(session: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a process that lives until its stdin ends, and looks like a coordinator where its arguments say so."""
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, SESSION_VARIABLE: session}
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [
        start(SESSION, "-m", "spark_queue.coordinator"),
        start(str(uuid.uuid4()), "-m", "spark_queue.coordinator"),
        start(SESSION, "-m", "spark_queue.cli"),
    ]
    yield started
    for process in started:
        process.communicate()


def test_coordinators_are_found_by_their_session_and_module(processes: list[subprocess.Popen[bytes]]) -> None:
    [found] = coordinators_of(SESSION)
    assert found.pid == processes[0].pid
    assert "test_coordinators_are_found" in starter_of(found)


@pytest.mark.usefixtures("processes")
def test_no_coordinator_is_found_for_a_session_that_started_none() -> None:
    assert coordinators_of(str(uuid.uuid4())) == []
