"""The demo itself, on some days of its data: every job, a kill, a close of each day, and books that balance."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from order_file import ORDERS_CSV
from tests.source_tree import ROOT

#: The first days of the file.
DAYS = ("2010-12-01", "2010-12-02", "2010-12-03", "2010-12-05", "2010-12-06")

#: Six starts of Spark on a busy machine; reached only when something hangs.
DEMO_S = 900


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(DEMO_S)
def test_demo_closes_each_day_and_balances_the_books_in_a_checkout_whose_path_has_a_space(tmp_path: Path) -> None:
    """Spark's own scripts stop there with exit code 127, and it finds no Python data source."""
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    for part in (".venv", "conf", "jobs", "pyspark_sparkqueue.py", "spark_queue", "tools"):
        (checkout / part).symlink_to(ROOT / part)
    command = [
        "tools/run.sh",
        "python",
        "jobs/demo.py",
        "--close",
        "day",
        "--csv",
        str(first_days(tmp_path)),
        "--place",
        "build/demo",
    ]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed 'east' with SIGKILL" in done.stdout
    assert "the books balance" in done.stdout


def first_days(place: Path) -> Path:
    """Write the lines of `DAYS` to a file of their own."""
    path = place / "orders.csv.gz"
    with gzip.open(ORDERS_CSV, "rt", encoding="utf-8") as orders, gzip.open(path, "wt", encoding="utf-8") as part:
        part.writelines(line for number, line in enumerate(orders) if number == 0 or any(f",{day} " in line for day in DAYS))
    return path
