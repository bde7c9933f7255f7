"""The coordinator's log, for people and for programs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from spark_queue.coordinator.logs import QUIET_S, JsonLines, RefusalLog
from spark_queue.core import commands
from tests.source_tree import ROOT


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_a_refused_call_is_told_with_request_queue_and_subscription(told: pytest.LogCaptureFixture) -> None:
    call = commands.StartRun(journal="j", request="r7", queue="WORK", subscription="east")
    RefusalLog().refused(call, "UNKNOWN_SUBSCRIPTION")
    [record] = told.records
    assert record.getMessage() == "Refused StartRun, queue 'WORK', subscription 'east': UNKNOWN_SUBSCRIPTION."
    line = json.loads(JsonLines().format(record))
    facts = {"code": "UNKNOWN_SUBSCRIPTION", "request": "r7", "queue": "WORK", "subscription": "east", "level": "INFO"}
    assert facts.items() <= line.items()
    assert line["message"] == record.getMessage()


def test_what_could_not_be_understood_is_told_without_facts(told: pytest.LogCaptureFixture) -> None:
    RefusalLog().refused(None, "FRAME_MALFORMED")
    assert told.records[0].getMessage() == "Refused a call: FRAME_MALFORMED."
    assert "queue" not in json.loads(JsonLines().format(told.records[0]))


def test_a_name_that_a_caller_chose_makes_no_lines_and_no_long_ones(told: pytest.LogCaptureFixture) -> None:
    call = commands.StartRun(request="r" * 1_000, queue="WORK'\n2026-01-01 INFO Epoch 9 serves" + "x" * 100_000, subscription="s")
    RefusalLog().refused(call, "ACCESS_DENIED")
    [record] = told.records
    assert "\n" not in record.getMessage()
    assert len(JsonLines().format(record)) < 2_000


def test_the_same_refusal_is_told_once_a_minute(told: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    counted: list[str] = []
    log = RefusalLog(counted.append, lambda: now_s[0])
    call = commands.StartRun(queue="WORK", subscription="east")
    log.refused(call, "STALE_RUN")
    now_s[0] = QUIET_S - 1
    log.refused(call, "STALE_RUN")
    assert len(told.records) == 1
    log.refused(commands.StartRun(queue="WORK", subscription="west"), "STALE_RUN")
    assert len(told.records) == 2, "another subscription's is another one"
    now_s[0] = QUIET_S
    log.refused(call, "STALE_RUN")
    assert len(told.records) == 3
    assert counted == ["STALE_RUN"] * 4, "all of them are counted"


def test_a_line_of_json_is_one_line_whatever_it_tells() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        record = logging.LogRecord("n", logging.ERROR, "p", 1, "told %s", ("a\nb",), sys.exc_info())
    text = JsonLines().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert line["message"] == "told a\nb"
    assert line["traceback"].endswith("second")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_process_writes_its_log_as_it_was_told(log_format: str) -> None:
    code = (
        "import logging; from spark_queue.coordinator import logs; "
        f"logs.configure('{log_format}'); logging.getLogger('x').warning('ALARM: %s', 'it burns')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    [line] = done.stderr.splitlines()
    if log_format == "json":
        assert json.loads(line)["message"] == "ALARM: it burns"
    else:
        assert line.endswith("WARNING ALARM: it burns")
