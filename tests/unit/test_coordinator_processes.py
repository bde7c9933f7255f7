"""The search for left coordinators finds what a session started, and nothing else; what is forked is as what is started."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from spark_queue import Journal
from spark_queue.client import launcher
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.host import StartOptions, location_of
from tests.coordinator_processes import SESSION_VARIABLE, coordinators_of, starter_of, warm_coordinators
from tests.source_tree import ROOT
from tests.waiting import wait_until

SESSION = str(uuid.uuid4())

#: A limit that no test reaches, and no system sets.
FILE_BYTES = (1 << 40) + 1


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


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """Return a journal whose coordinators have a session, a user and a limit of their own, and ignore a signal."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv(SESSION_VARIABLE, str(uuid.uuid4()))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "startup"))
    types = {"json": {"topics": ["T"]}}
    return Journal.create(str(tmp_path / "journal"), {"message_types": types, "queues": {"Q": {"underlying_topic": "T"}}})


def launched(journal: Journal) -> psutil.Process:
    """Launch a coordinator, and return its process."""
    options = StartOptions(path=journal.store.path, storage_options={}, journal_id=journal.journal_id())
    launcher.launch(options, timeout_s=60)
    client = CoordinatorClient(journal.store, journal.journal_id(), start=False)
    pong = client.call(wire.Ping(journal=journal.journal_id(), request="ping"))
    client.close()
    assert isinstance(pong, wire.Pong)
    return psutil.Process(pong.pid)


def ended_well(journal: Journal, process: psutil.Process) -> bool:
    """Tell a coordinator to end, and return whether its log, in the files of its user, says that it ended cleanly."""
    process.terminate()
    psutil.wait_procs([process], timeout=60)
    log = user_files.log_path(journal.journal_id(), location_of(journal.store)).read_text()
    return f"serves {journal.store.path}" in log and "ends cleanly" in log


def test_a_forked_coordinator_is_as_one_that_was_started(journal: Journal, tmp_path: Path) -> None:
    """It has the environment, streams, directory, signals and limits of the process in whose place it is."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with warm_coordinators(tmp_path):
            wait_until((tmp_path / "warm").exists)
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, limits[1]))
            process = launched(journal)
            assert "tests.startup.warm_coordinators" in process.cmdline()
            assert process in coordinators_of(os.environ[SESSION_VARIABLE])
            assert process.cwd() == "/"
            assert process.rlimit(psutil.RLIMIT_FSIZE)[0] == FILE_BYTES
            assert os.getsid(process.pid) == process.pid
            process.send_signal(signal.SIGHUP)
            assert ended_well(journal, process)
    finally:
        signal.signal(signal.SIGHUP, before)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_where_nothing_forks_it_a_coordinator_is_started(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARM_COORDINATORS", str(tmp_path / "nobody"))
    process = launched(journal)
    assert process.cmdline()[1:] == ["-m", "spark_queue.coordinator"]
    assert ended_well(journal, process)
