"""What most tests of the journal package begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.expression.program import Program
from spark_queue.journal import upkeep
from tests.unit.journal.journal_on_disk import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Give a journal of its own."""
    return Disk(tmp_path / "journal")


@pytest.fixture
def evaluated_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give a list that gets the number of rows of each evaluation from now on."""
    noted: list[int] = []
    run = Program.run

    def counted(program: Program, rows: pa.Table) -> Any:
        noted.append(len(rows))
        return run(program, rows)

    monkeypatch.setattr(Program, "run", counted)
    return noted


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything due after a few commits."""
    monkeypatch.setattr(upkeep, "CONTROL_CHECKPOINT_COMMITS", 5)
    monkeypatch.setattr(upkeep, "MESSAGES_CHECKPOINT_COMMITS", 3)
    monkeypatch.setattr(upkeep, "FLUSH_MS", 0)
    monkeypatch.setattr(upkeep, "CONTROL_KEPT_COMMITS", 4)
