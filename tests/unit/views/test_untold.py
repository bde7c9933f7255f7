"""Figures of one queue that cannot be told: whoever shows queues shows the others, and says of that one what was raised (R122)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state import status
from spark_queue.core.state.journal_state import JournalState
from spark_queue.dashboard.journal_page import queue_row
from spark_queue.following.follower import JournalFollower
from spark_queue.journal.open import open_journal
from spark_queue.metrics.samples import figures_at
from spark_queue.views import state_at

DEFINITIONS: dict[str, Any] = {
    "message_types": {"json": {"topics": ["T"]}},
    "queues": {"WORK": {"underlying_topic": "T"}, "OTHER": {"underlying_topic": "T"}},
}


@pytest.fixture(name="journal")
def journal_with_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    real = status.queue_status

    def raising(state: JournalState, queue: str, **about: Any) -> QueueStatus:
        if queue == "WORK":
            raise ZeroDivisionError("a bug")
        return real(state, queue, **about)

    monkeypatch.setattr(status, "queue_status", raising)
    journal = Journal.create(str(tmp_path / "journal"), DEFINITIONS)
    journal.publish([{"value": "1"}], topic="T")
    return journal


def test_the_view_of_all_queues(journal: Journal) -> None:
    rows = {row["queue"]: row for row in journal.view("status").to_pylist()}
    assert (rows["OTHER"]["queue_depth"], rows["OTHER"]["alarm"]) == (1, None)
    assert rows["WORK"]["alarm"] == "Its figures cannot be computed: ZeroDivisionError: a bug."


def test_metrics(journal: Journal) -> None:
    found = figures_at(state_at(open_journal(journal.store)))
    assert ([each.queue for each in found.statuses], found.set_aside) == (["OTHER"], ["WORK"])


def test_the_page(journal: Journal) -> None:
    follower = JournalFollower("shop", journal.store)
    follower.refresh()
    with follower.look() as look:
        assert look is not None
        rows = {name: queue_row(look, name) for name in ("WORK", "OTHER")}
    assert (rows["OTHER"].trouble, rows["WORK"].trouble) == (None, "Its figures cannot be computed: ZeroDivisionError: a bug.")
