"""The statistics of a queue are the same, whoever shows them (R119)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from spark_queue.clock import SystemClock
from spark_queue.core.records import Outcome
from spark_queue.core.replies import Granted
from spark_queue.core.state.status import queue_status
from spark_queue.journal.store import Store
from spark_queue.settings.types import QueueStreamOptions
from spark_queue.source.offsets import QueueOffset
from spark_queue.source.partitions import MessageReader
from spark_queue.source.spark_versions import ReadMaxRows
from spark_queue.source.stream_reader import QueueStreamReader
from tests.unit.cli.sparkq import Terminal
from tests.unit.views.views_world import START_MS, ViewsWorld


class FixedPlanner:
    """Answers with one status, as it comes over the wire."""

    def __init__(self, granted: Granted) -> None:
        self._granted = msgspec.msgpack.decode(msgspec.msgpack.encode(granted), type=Granted)

    def next(self, *, finished: int, limit: int, wait_ms: int, asks_again: bool) -> Granted:
        return self._granted

    def leave(self) -> None:
        """Hold nothing."""


def progress(granted: Granted, queue: str) -> dict[str, Any] | None:
    """Return what Spark shows after a poll with this answer."""
    start = QueueOffset(journal="j", queue=queue, subscription="s")
    reader = MessageReader(store=Store("/nowhere"), message_type="json", schema=pa.schema([]))
    seat: Any = FixedPlanner(granted)
    options = QueueStreamOptions(
        journal="/nowhere", storage={}, coordinator=None, queue=queue, subscription="s", ack_mode="auto", max_backlog=4,
        filter=None, columns=None, min_partitions=None,
    )  # fmt: skip
    stream = QueueStreamReader(options, first_offset=start, reader=reader, columns=None)
    stream._planner = seat
    stream.latestOffset(start.to_json(), ReadMaxRows(4))
    return stream.reportLatestOffset()


def test_python_command_line_view_and_progress_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, now_ms = ViewsWorld(tmp_path), START_MS + 9_000
    world.publish(*range(10))
    world.attach()
    world.next(4)
    world.settle(Outcome.EXPIRE, 0)
    world.settle(Outcome.CANCEL, 1, due_at_ms=START_MS + 10**6)
    world.commit()
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _self: now_ms)

    for queue in ("WORK", "FAILED"):
        expected = asdict(world.journal.queue(queue).status())
        assert world.journal.view("status", queue=queue).to_pylist() == [expected]
        assert Terminal(monkeypatch=monkeypatch, capsys=capsys)("status", world.journal.path, queue, "--json").json == [expected]
        status = queue_status(world.engine.state, queue, now_ms=now_ms)
        granted = Granted(lease=1, lease_period_ms=60_000, status=status)
        assert progress(granted, queue) == expected
        if queue == "WORK":
            assert (expected["queue_depth"], expected["backlog"], expected["delayed"], expected["dead_letters"]) == (9, 2, 1, 1)
            assert (expected["seconds_behind"], expected["age_of_oldest_lease"]) == (9.0, 9.0)
