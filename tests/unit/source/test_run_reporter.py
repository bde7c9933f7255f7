"""What batches say, from two threads: Spark's, which runs them, and the listener's, which hears of commits (DESIGN 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue.coordinator import wire
from spark_queue.source.offsets import QueueOffset
from spark_queue.source.run_reporter import RunReporter
from tests.unit.journal.journal_on_disk import Disk


def test_proof_of_a_batch_leaves_the_next_one_to_be_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the proof of one batch is on its way the next may end, and at `query.stop()` nobody else would prove that one."""
    disk = Disk(tmp_path / "journal")
    reporter = RunReporter(disk.store, coordinator=None, queue="WORK", subscription="s")
    runs = [wire.Run(incarnation=(1, 1), lease=lease) for lease in (1, 2)]
    proven: list[int] = []

    def answer(request: Any, **_: Any) -> wire.Done:
        if isinstance(request, wire.Prove):
            proven.append(request.run.lease)
            if request.run == runs[0]:
                reporter.end(runs[1], (), settle=False)
        return wire.Done()

    for client in (reporter._client, reporter._prover):
        monkeypatch.setattr(client, "call", answer)
    reporter.end(runs[0], (), settle=False)
    for lease in (1, 2):
        reporter.prove(QueueOffset(journal=disk.journal_id, queue="WORK", subscription="s", lease=lease).to_json())
    assert proven == [1, 2]
