"""The demo of a table that a plain Spark job writes, with a stream and a worker over it, on some lines of its data."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT

#: Three starts of Spark on a busy machine; reached only when something hangs.
DEMO_S = 900


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(DEMO_S)
def test_a_stream_and_a_worker_share_what_a_plain_spark_job_appends_to_a_table(tmp_path: Path) -> None:
    """R141, R144 to R146, R151, R152: each line is booked once, as it was appended, whatever DELETE, OPTIMIZE and VACUUM do."""
    command = ["tools/run.sh", "python", "jobs/demo_follow.py", "--lines", "40000", "--place", str(tmp_path / "follow")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DELETEs that passed" in done.stdout
    assert "files left over that VACUUM took" in done.stdout
    assert "the books balance" in done.stdout
