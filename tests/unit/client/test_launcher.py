"""Starting a coordinator process: what it is told, what it reports, and that nothing ties it to its starter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_queue.client import launcher
from spark_queue.errors import SparkQueueError
from spark_queue.protocol.host import StartOptions

#: Waits for a child's report; reached only where that is what is tested, or when a test fails.
DEADLINE_S = 30.0

#: Starts a child that runs some code in the coordinator's place; returns the address that it reports.
Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    popen = subprocess.Popen

    def started(code: str, *, timeout_s: float = DEADLINE_S, **options: str) -> str:
        def child(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
            assert command[0] == sys.executable
            return popen([sys.executable, "-c", f"import json, os, sys\n{code}"], **settings)

        monkeypatch.setattr(subprocess, "Popen", child)
        return launcher.launch(StartOptions(path=str(tmp_path), storage_options=options, journal_id="J"), timeout_s=timeout_s)

    return started


def test_a_process_reads_its_orders_and_reports_where_it_serves(start: Start) -> None:
    code = "orders = json.load(sys.stdin)\nprint(json.dumps({'address': orders['storage_options']['where']}))"
    assert start(code, where="grpc://there:1") == "grpc://there:1"


def test_a_process_outlives_the_session_of_its_starter(start: Start) -> None:
    assert start("print(json.dumps({'address': str(os.getsid(0) == os.getpid())}))") == "True"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "COORDINATOR_UNAVAILABLE.*it ended without a report"),
        ("print('Traceback')", "COORDINATOR_UNAVAILABLE.*its report cannot be read"),
        ("print(json.dumps({'code': 'NOT_A_JOURNAL', 'facts': {'path': 'here', 'reason': 'empty.'}}))", "NOT_A_JOURNAL.*here"),
    ],
    ids=["silent", "garbled", "refused"],
)
def test_what_kept_a_process_from_serving_is_told(start: Start, code: str, reason: str) -> None:
    with pytest.raises(SparkQueueError, match=reason):
        start(code)


def test_a_process_that_does_not_report_in_time_is_told_from_one_that_ended(start: Start) -> None:
    with pytest.raises(SparkQueueError, match="COORDINATOR_UNAVAILABLE.*did not report within 0 s"):
        start("import time\ntime.sleep(3)", timeout_s=0.1)


def test_a_process_that_ends_before_it_has_read_its_orders_is_told_as_any_other(start: Start) -> None:
    with pytest.raises(SparkQueueError, match="COORDINATOR_UNAVAILABLE.*it ended without a report"):
        start("", long="x" * 1_000_000)


def test_memory_settings_of_the_user_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    found = launcher.environment()
    assert (found["MALLOC_ARENA_MAX"], found["ARROW_DEFAULT_MEMORY_POOL"]) == ("7", "system")
