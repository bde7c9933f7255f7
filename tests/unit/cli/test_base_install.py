"""Verbs that look at journals as the page does, where the page's own packages are not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_queue import Journal

#: What the extra `dashboard` brings; and what `metrics` does, which only metrics need.
PAGE = ("anyio", "jinja2", "multipart", "python_multipart", "starlette", "uvicorn")
METRICS = ("prometheus_client",)

WAIT_S = 60.0


def run_without(missing: tuple[str, ...], *arguments: object, first: str = "") -> subprocess.CompletedProcess[str]:
    """Run `sparkq` where some packages cannot be imported."""
    program = f"{first}import sys; sys.modules |= dict.fromkeys({missing!r}); from spark_queue.cli.app import run; run()"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


@pytest.mark.parametrize("verb", [("log",), ("dead-letters", "WORK"), ("explain", "WORK", 0)])
def test_who_looks_needs_no_extra(journal: Journal, verb: tuple[object, ...]) -> None:
    journal.publish([{"amount": 1}], topic="LINES")
    name, *rest = verb
    ended = run_without(PAGE + METRICS, name, journal.path, *rest, "--json")
    assert not ended.stderr
    assert json.loads(ended.stdout) is not None


def test_a_textfile_is_kept_without_the_packages_of_the_page(journal: Journal, tmp_path: Path) -> None:
    file = tmp_path / "shop.prom"
    # The first rest is the end, as by Ctrl-C.
    once = "import signal, time; time.sleep = lambda _: signal.raise_signal(signal.SIGINT); "
    ended = run_without(PAGE, "metrics", journal.path, "--textfile", file, "--every", 1, first=once)
    assert file.exists(), ended.stderr
    assert "Traceback" not in ended.stderr
