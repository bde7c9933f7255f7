"""The notebooks run from top to bottom, and what is stored of them is fit to be read (DESIGN 9)."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests import notebooks

#: A notebook with its pictures stays smaller than this.
NOTEBOOK_BYTES = 200_000

#: Those that say that each of their cells may be run again.
WITHOUT_SPARK = [path for path in notebooks.NOTEBOOKS if "SparkSession" not in path.read_text(encoding="utf-8")]


def test_there_are_notebooks() -> None:
    assert [path.stem for path in notebooks.NOTEBOOKS] == [
        "01_publish_and_consume",
        "02_lease_expiry_and_redelivery",
        "03_barriers",
        "04_dead_letters_and_redrive",
        "05_time_travel_and_explain",
        "06_two_sites",
        "07_a_queue_on_a_table_you_have",
        "08_a_worker_in_plain_python",
    ]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(notebooks.CELL_S * 2)
@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_draws_and_leaves_no_process(path: Path, tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    executed = notebooks.execute(path, tmp_path)
    assert any("image/png" in output.get("data", {}) for cell in executed.cells for output in cell.get("outputs", []))
    _, left = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=30)
    assert not left


@pytest.mark.slow
@pytest.mark.timeout(notebooks.CELL_S * 2)
@pytest.mark.parametrize("path", WITHOUT_SPARK, ids=lambda path: path.stem)
def test_notebook_without_spark_may_be_run_again_cell_by_cell_and_after_a_restart(path: Path, tmp_path: Path) -> None:
    notebooks.execute(path, tmp_path, times=2)
    assert list(tmp_path.iterdir()) == []
    notebooks.execute(path, tmp_path)


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebook_is_clean(path: Path) -> None:
    stored = notebooks.read(path)
    again = notebooks.read(path)
    notebooks.clean(again)
    assert stored == again, "run `python -m tests.notebooks`"
    text = path.read_text(encoding="utf-8")
    assert len(text) < NOTEBOOK_BYTES
    assert "/tmp/" not in text
