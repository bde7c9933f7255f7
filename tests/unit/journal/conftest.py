"""What most tests of the journal package begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue.journal import upkeep
from tests.unit.journal.journal_on_disk import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Give a journal of its own."""
    return Disk(tmp_path / "journal")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything due after a few commits."""
    monkeypatch.setattr(upkeep, "CONTROL_CHECKPOINT_COMMITS", 5)
    monkeypatch.setattr(upkeep, "MESSAGES_CHECKPOINT_COMMITS", 3)
    monkeypatch.setattr(upkeep, "FLUSH_MS", 0)
    monkeypatch.setattr(upkeep, "CONTROL_KEPT_COMMITS", 4)
