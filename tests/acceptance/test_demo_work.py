"""The demo of a Spark job and a worker in plain Python that share a queue, on some lines of its data."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT

#: Two starts of Spark on a busy machine; reached only when something hangs.
DEMO_S = 900


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(DEMO_S)
def test_a_spark_job_and_a_worker_share_a_queue_and_each_is_killed(tmp_path: Path) -> None:
    """R131 to R133, R138, with real kills: the books balance, and every line that came twice has its reason."""
    command = ["tools/run.sh", "python", "jobs/demo_work.py", "--lines", "80000", "--place", str(tmp_path / "work")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "both are killed with SIGKILL" in done.stdout
    assert "after lease_expired" in done.stdout
    assert "the books balance" in done.stdout
