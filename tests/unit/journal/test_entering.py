"""Entering from message logs on disk, reign after reign, while the logs are kept short (DESIGN 4, 15.10)."""

from __future__ import annotations

import os
import shutil
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import write_deltalake

from spark_queue.clock import SystemClock
from spark_queue.coordinator.election import Reign
from spark_queue.coordinator.inbox import Call, Inbox
from spark_queue.coordinator.loop import Loop
from spark_queue.coordinator.recovery import recover
from spark_queue.coordinator.reign_clock import ReignClock
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import Kind, MergedFile, MovedRows
from spark_queue.journal import upkeep
from spark_queue.journal.entering import EnteredNames
from spark_queue.journal.log_entry import read_entry
from spark_queue.journal.publisher import open_name
from spark_queue.journal.store import messages_key
from spark_queue.ports import AddedFile, MessageLogEntry
from spark_queue.protocol import wire
from spark_queue.source.topic_log import TopicLog
from spark_queue.views.journal_view import repeated_entries, state_at
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
    records = deque(journal.control.load().records)
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


def copy_entry(disk: Disk, version: int) -> int:
    """Let an entry stand in the log once more, behind its head, as who copies files by hand does."""
    head = max(int(path.stem) for path in disk.log_path(ORDER, 0).parent.glob("*.json"))
    shutil.copy(disk.log_path(ORDER, version), disk.log_path(ORDER, head + 1))
    return head + 1


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("has_entered", [False, True])
def test_an_entry_that_stands_twice_enters_once(disk: Disk, version: int, has_entered: bool) -> None:
    """Whether it is the newest that was copied or another one, entered by then or not; and what comes behind it enters."""
    for number in range(4):
        disk.publish([number, number])
    if has_entered:
        assert entered(reign(disk, 1)) == 8
    copied = copy_entry(disk, version)
    disk.publish([4])
    assert TopicLog(disk.store, disk.journal_id, "order", "ORDERS").until == 9
    view = state_at(disk.open())
    assert (view.state.message_types["order"].entered_until, [each.facts["version"] for each in repeated_entries(view)]) == (
        9, [copied],
    )  # fmt: skip
    for epoch in (2, 3):
        loop = reign(disk, epoch)
        assert entered(loop) == 9
        assert list(loop._engine.state.message_types["order"].repeated) == [copied]
    assert len([record for record in disk.open().records() if record.kind == Kind.REPEATED]) == 1
    assert disk.stored().num_rows == 9, "and so counts Delta"


def test_a_copy_that_is_taken_away_again_does_no_harm(disk: Disk) -> None:
    disk.publish([0])
    copied = copy_entry(disk, 1)
    assert entered(reign(disk, 1)) == 1
    disk.log_path(ORDER, copied).unlink()
    disk.publish([1])
    assert disk.log_path(ORDER, copied).exists()
    assert entered(reign(disk, 2)) == 2
    assert repeated_entries(state_at(disk.open())) == []


def test_files_that_stand_in_the_log_twice_under_another_token_enter_once(disk: Disk) -> None:
    disk.publish([0])
    version = copy_entry(disk, 1)
    told = disk.log_path(ORDER, version).read_text()
    token = read_entry(disk.store, ORDER, version)
    assert token is not None
    disk.log_path(ORDER, version).write_text(told.replace(token.token, "another"))
    assert entered(reign(disk, 1)) == 1


def test_a_merge_that_stands_twice_merges_once(disk: Disk) -> None:
    """Its parts are gone by then, and it would pass for damage."""
    known = MessageTypeState()
    part = AddedFile(path="a", row_count=2, topic_min="ORDERS", topic_max="ORDERS", expires_null_count=2)
    first = MessageLogEntry(version=1, token="t1", added=(part, replace(part, path="b")))
    names = EnteredNames(known)
    assert names.without_repeats(first) == (first, ())
    names.note(first)
    assert names.without_repeats(replace(first, version=2)) == (replace(first, version=2, added=()), ("a", "b"))
    rows = tuple(MovedRows(path=path, first_row=0, row_count=2, bookmark=bookmark) for path, bookmark in (("a", 0), ("b", 2)))
    merge = MessageLogEntry(version=3, token="t3", merged=(MergedFile(path="c", parts=rows),))
    assert names.without_repeats(merge) == (merge, ())
    names.note(merge)
    assert names.without_repeats(replace(merge, version=4)) == (replace(merge, version=4, merged=()), ("c",))
    twice = MessageLogEntry(version=5, token="t5", added=(replace(part, path="d"), replace(part, path="d")))
    assert names.without_repeats(twice) == (replace(twice, added=twice.added[:1]), ("d",))
