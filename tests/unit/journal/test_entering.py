"""Entering from message logs on disk, reign after reign, while the logs are kept short (DESIGN 4, 15.10)."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

import pytest
from deltalake import write_deltalake

from spark_queue.clock import SystemClock
from spark_queue.coordinator.election import Reign, ReignClock
from spark_queue.coordinator.inbox import Call, Inbox
from spark_queue.coordinator.loop import Loop
from spark_queue.coordinator.process import recover
from spark_queue.journal import upkeep
from spark_queue.journal.publisher import open_name
from spark_queue.journal.store import messages_key
from spark_queue.protocol import wire
from spark_queue.source.topic_log import TopicLog
from tests.no_peers import NoPeers
from tests.unit.journal.journal_on_disk import Disk, claim

ORDER = messages_key("order")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(upkeep, "MESSAGES_CHECKPOINT_COMMITS", 3)
    return Disk(tmp_path / "journal")


def reign(disk: Disk, epoch: int, *, ahead_ms: int = 0) -> Loop:
    """Begin a reign, its time ahead of the host's; its first step enters what is there, and keeps the logs short."""
    journal = disk.open()
    claim(journal.control, epoch)
    records = deque(journal.control.load())
    clock = ReignClock(SystemClock(), last_record_ms=SystemClock().wall_ms() + ahead_ms)
    loop = recover(Reign(epoch=epoch, records=records, clock=clock), journal, Inbox(), pullers=NoPeers(), ends_idle=False)
    journal._upkeep.finish()
    return loop


def let_a_day_pass(disk: Disk) -> None:
    for path in disk.log_path(ORDER, 0).parent.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))


def first_kept(disk: Disk) -> int:
    return min(int(path.stem) for path in disk.log_path(ORDER, 0).parent.glob("*.json"))


def entered(loop: Loop) -> int:
    loop.step([Call(wire.Nudge(journal="", request="r", message_type="order"), lambda: False)])
    return loop._engine.state.message_types["order"].entered_until


def test_commits_without_messages_never_outlive_the_one_that_entered_last(disk: Disk) -> None:
    """The next reign looks for the commit that entered last, and reads on from it; opening a publisher's name leaves no record."""
    for number in range(4):
        disk.publish([number])
    for _ in range(4):
        open_name(disk.store, disk.journal_id, ["order"], "hourly", durable=False)
    let_a_day_pass(disk)
    reign(disk, 1)
    assert first_kept(disk) == 4, "the last commit with messages"
    later = reign(disk, 2)
    disk.publish([4])
    assert entered(later) == 5


def test_reign_whose_time_is_ahead_keeps_what_was_written_just_now(disk: Disk) -> None:
    """A log up to a day ahead is taken over with a warning (CLOCK_SKEW), and files bear the store's time, not the reign's."""
    for number in range(5):
        disk.publish([number])
    assert entered(reign(disk, 1, ahead_ms=2 * 86_400_000)) == 5
    assert disk.log_path(ORDER, 5).with_name(f"{5:020d}.checkpoint.parquet").exists(), "upkeep was due"
    assert first_kept(disk) == 0


def test_topic_is_read_on_from_a_strangers_commit_that_was_noted(disk: Disk) -> None:
    """What was noted as foreign is below the last recorded version, and may be gone from the log."""
    for number in range(3):
        disk.publish([number])
    rows = disk.stored().slice(0, 1)
    for _ in range(2):
        write_deltalake(disk.store.messages_uri("order"), rows, mode="append")
    let_a_day_pass(disk)
    reign(disk, 1)
    assert first_kept(disk) == 5
    disk.publish([3])
    assert TopicLog(disk.store, disk.journal_id, "order", "ORDERS").until == 4
