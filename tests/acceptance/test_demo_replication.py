"""The demo of two sites, on some lines of its data: transfers, a lost site, claims, and books that balance."""

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
def test_two_sites_share_a_queue_and_one_of_them_is_lost(tmp_path: Path) -> None:
    """R101 to R105 and R107 to R111, with two Spark consumers and real coordinators."""
    command = ["tools/run.sh", "python", "jobs/demo_replication.py", "--lines", "9000", "--place", str(tmp_path / "sites")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Frankfurt asks for Virginia's lines" in done.stdout
    assert "0 came by transfer, 0 went" not in done.stdout, "each site gave or took"
    assert "the books balance" in done.stdout
