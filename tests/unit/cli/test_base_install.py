"""Verbs that look at journals as the page does, where the page's own packages are not installed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_queue import Journal

#: What the extra `dashboard` brings; and what `metrics` does, which only metrics need.
PAGE = ("anyio", "jinja2", "multipart", "python_multipart", "starlette", "uvicorn")
METRICS = ("prometheus_client",)

WAIT_S = 60.0


def started(missing: tuple[str, ...], *arguments: object) -> subprocess.Popen[str]:
    """Start `sparkq` where some packages cannot be imported."""
    program = f"import sys; sys.modules |= dict.fromkeys({missing!r}); from spark_queue.cli.app import run; run()"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("verb", [("log",), ("dead-letters", "WORK"), ("explain", "WORK", 0)])
def test_who_looks_needs_no_extra(journal: Journal, verb: tuple[object, ...]) -> None:
    journal.publish([{"amount": 1}], topic="LINES")
    name, *rest = verb
    told, problems = started(PAGE + METRICS, name, journal.path, *rest, "--json").communicate(timeout=WAIT_S)
    assert not problems
    assert json.loads(told) is not None


def test_a_textfile_is_kept_without_the_packages_of_the_page(journal: Journal, tmp_path: Path) -> None:
    file, until_s = tmp_path / "shop.prom", time.monotonic() + WAIT_S
    kept = started(PAGE, "metrics", journal.path, "--textfile", file, "--every", 1)
    try:
        while not file.exists() and kept.poll() is None and time.monotonic() < until_s:
            time.sleep(0.05)
    finally:
        kept.send_signal(signal.SIGINT)
        _, problems = kept.communicate(timeout=WAIT_S)
    assert file.exists(), problems
    assert "Traceback" not in problems
