"""Checkpoints and clean-up, to the letter of DESIGN 15.10."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_queue.clock import SystemClock
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.journal import control_checkpoint, upkeep
from spark_queue.journal.control_log import MESSAGES_PER_RECORD, DeltaControlLog
from spark_queue.journal.log_listing import LastCheckpoint
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.store import CONTROL, messages_key
from tests.records import ENTERED, replaced
from tests.scenario.traits import MemoryTraits
from tests.unit.journal.journal_on_disk import Disk, claim, left

ORDER = messages_key("order")
DAY_MS = 24 * 3600 * 1000
#: Upkeep's time: every file that a test does not touch is fifty days old by it.
NOW_MS = SystemClock().wall_ms() + 50 * DAY_MS


def age(disk: Disk, table: str, age_ms: int, *, newest: int = 10_000) -> None:
    """Let the entries of a log up to a version be of an age."""
    for path in disk.log_path(table, 0).parent.iterdir():
        if path.name[:20].isdigit() and int(path.name[:20]) <= newest:
            written_s = (NOW_MS - age_ms) / 1000
            os.utime(path, (written_s, written_s))


def versions(disk: Disk, table: str, suffix: str = ".json") -> list[int]:
    return sorted(int(path.name[:20]) for path in disk.log_path(table, 0).parent.glob(f"*{suffix}"))


def entered_state(order: int) -> JournalState:
    """Return a state in which a version of type order has entered."""
    state = JournalState(MemoryTraits())
    state.message_types = {"order": MessageTypeState(), "json": MessageTypeState()}
    state.message_types["order"].version = order
    return state


def run(journal: DeltaJournal, *, order: int = 0, epoch: int = 1) -> None:
    journal.upkeep(epoch=epoch, state=entered_state(order), now_ms=NOW_MS)
    journal._upkeep.finish()


def append(journal: DeltaJournal, record: int, count: int) -> int:
    for number in range(record, record + count):
        journal.control.append([left(number)], epoch=1)
    return record + count


@pytest.mark.usefixtures("small")
def test_control_log_keeps_what_is_young_or_near_the_checkpoint(disk: Disk) -> None:
    journal = disk.open()
    record = append(journal, claim(journal.control), 9)
    age(disk, CONTROL, 11 * 60 * 1000)
    run(journal)
    # Version 11 has files of all records, which entries alone held until then.
    assert versions(disk, CONTROL, ".checkpoint.parquet") == [11]
    assert versions(disk, CONTROL) == [7, 8, 9, 10, 11]
    record = append(journal, record, 5)
    os.utime(disk.log_path(CONTROL, 10), (NOW_MS / 1000 - 540, NOW_MS / 1000 - 540))
    run(journal)
    # Version 11 is old enough and below the limit, but nothing may be missing between the oldest kept entry and the newest.
    assert versions(disk, CONTROL) == [10, 11, 12, 13, 14, 15, 16, 17]
    assert versions(disk, CONTROL, ".checkpoint.parquet") == [11, 17]
    assert len(DeltaControlLog(disk.store).load().records) == record


@pytest.mark.usefixtures("small")
def test_checkpoints_go_once_a_newer_one_serves_all_that_is_kept(disk: Disk) -> None:
    journal = disk.open()
    record = claim(journal.control)
    for _ in range(4):
        record = append(journal, record, 5)
        age(disk, CONTROL, DAY_MS)
        run(journal)
    kept = versions(disk, CONTROL)
    checkpoints = versions(disk, CONTROL, ".checkpoint.parquet")
    assert kept[0] >= checkpoints[0], "the state at the oldest kept entry can still be built"
    assert len(checkpoints) == 2
    assert len(disk.open().control.load().records) == record


@pytest.mark.usefixtures("small")
def test_nothing_is_done_before_it_is_due(disk: Disk) -> None:
    journal = disk.open()
    append(journal, claim(journal.control), 3)
    disk.publish([1])
    run(journal, order=1)
    assert versions(disk, CONTROL, ".checkpoint.parquet") == []
    assert versions(disk, ORDER) == [0, 1]


@pytest.mark.usefixtures("small")
def test_message_log_loses_only_what_was_entered_a_day_ago(disk: Disk) -> None:
    journal = disk.open()
    claim(journal.control)
    for number in range(6):
        disk.publish([number])
    age(disk, ORDER, DAY_MS + 1, newest=2)
    os.utime(disk.log_path(ORDER, 3), (NOW_MS / 1000, NOW_MS / 1000))
    run(journal, order=5)
    assert versions(disk, ORDER, ".checkpoint.parquet") == [5], "at the last entered version, not at the head"
    assert versions(disk, ORDER) == [3, 4, 5, 6, 7], "7 is the reign's own claim of the table"
    entered = list(journal.messages("order").tail(4))
    assert [entry.version for entry in entered] == [5, 6, 7]
    assert disk.ids() == list(range(6))
    journal.messages("order").recover(version=5, token=entered[0].token)


@pytest.mark.usefixtures("small")
def test_last_entered_version_stays_however_old(disk: Disk) -> None:
    """The next reign compares its token."""
    journal = disk.open()
    claim(journal.control)
    for number in range(4):
        disk.publish([number])
    age(disk, ORDER, 30 * DAY_MS)
    run(journal, order=4)
    assert versions(disk, ORDER) == [4, 5]
    assert disk.publish([4]).rows == 1


@pytest.mark.usefixtures("small")
def test_older_reign_may_not_work_on_message_tables(disk: Disk) -> None:
    """DESIGN 4: work on message tables starts each reign with the epoch in that table."""
    old, new = disk.open(), disk.open()
    claim(old.control)
    old._control.flush(epoch=1, at_ms=0)
    for number in range(4):
        disk.publish([number])
    claim(new.control, 2)
    run(new, order=4, epoch=2)
    assert DeltaTable(disk.store.messages_uri("order")).transaction_version("c:coordinator") == 2
    for number in range(4):
        disk.publish([number])
    with pytest.raises(CoordinatorError, match=r"COORDINATOR_DEPOSED.*message type 'order' carries epoch 2"):
        run(old, order=8)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "line",
    [{"txn": {"appId": "c:coordinator", "version": 10**9}}, {"txn": {"appId": "c:coordinator", "version": 2**63 - 1}}, {"add": {}}],
)
def test_what_one_type_says_neither_ends_a_reign_nor_keeps_other_logs_long(disk: Disk, line: dict[str, Any]) -> None:
    """Who may write messages of one type may write into its log that a newer reign works there."""
    journal = disk.open()
    record = claim(journal.control)
    for number in range(4):
        disk.publish([number])
    disk.log_path(ORDER, 5).write_text(json.dumps(line) + "\n")
    append(journal, record, 5)
    with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
        run(journal, order=4)
    assert versions(disk, CONTROL, ".checkpoint.parquet")


@pytest.mark.usefixtures("small")
def test_reign_that_has_claimed_a_table_does_not_claim_it_again(disk: Disk) -> None:
    journal = disk.open()
    claim(journal.control)
    for number in range(8):
        disk.publish([number])
    run(journal, order=4)
    run(journal, order=8)
    assert versions(disk, ORDER, ".checkpoint.parquet") == [8], "the one at 4 serves nothing that is kept"
    assert versions(disk, ORDER) == [8, 9]


@pytest.mark.usefixtures("small")
def test_new_reign_goes_on_from_the_checkpoint_that_is_there(disk: Disk) -> None:
    journal = disk.open()
    record = append(journal, claim(journal.control), 5)
    run(journal)
    assert versions(disk, CONTROL, ".checkpoint.parquet") == [7]
    again = disk.open()
    assert claim(again.control, 2) == record + 1
    run(again, epoch=2)
    assert versions(disk, CONTROL, ".checkpoint.parquet") == [7]


@pytest.mark.usefixtures("small")
def test_a_checkpoint_of_many_actions_is_not_written_as_often(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "CHECKPOINT_ACTIONS_PER_COMMIT", 1)
    monkeypatch.setattr(upkeep, "CONTROL_CHECKPOINT_COMMITS", 3)
    journal = disk.open()
    record = append(journal, claim(journal.control), 5)
    run(journal)
    size = json.loads((disk.log_path(CONTROL, 0).parent / "_last_checkpoint").read_bytes())["size"]
    assert size == 6, "protocol, metadata, the epoch, and each file"
    record = append(journal, record, size - 2)
    # This writes a data file.
    run(journal)
    assert versions(disk, CONTROL, ".checkpoint.parquet") == [7]
    append(journal, record, 1)
    run(journal)
    assert versions(disk, CONTROL, ".checkpoint.parquet") == [7, 7 + size + 1]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("hint", [b"", b"{", b"[]", b'{"v":1}'])
def test_torn_checkpoint_hint_costs_an_early_checkpoint_only(disk: Disk, hint: bytes) -> None:
    journal = disk.open()
    append(journal, claim(journal.control), 5)
    run(journal)
    (disk.log_path(CONTROL, 0).parent / "_last_checkpoint").write_bytes(hint)
    again = disk.open()
    claim(again.control, 2)
    run(again, epoch=2)
    assert versions(disk, CONTROL, ".checkpoint.parquet") == [7, 9]


def test_tables_never_clean_themselves(disk: Disk) -> None:
    for uri in (disk.store.uri(CONTROL), disk.store.messages_uri("order")):
        properties = DeltaTable(uri).metadata().configuration
        assert properties["delta.enableExpiredLogCleanup"] == "false"
        assert properties["delta.logRetentionDuration"] == "interval 36500 days"
    control = DeltaTable(disk.store.uri(CONTROL)).metadata().configuration
    assert control["delta.deletedFileRetentionDuration"] == "interval 1 hours"
    for number in range(120):
        disk.publish([number])
    assert versions(disk, ORDER) == list(range(121))
    assert versions(disk, ORDER, ".checkpoint.parquet") == []


@pytest.mark.usefixtures("small")
def test_commits_go_on_while_the_log_is_kept_in_order(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller never waits for a checkpoint; what is due meanwhile waits for the next look."""
    journal = disk.open()
    record = append(journal, claim(journal.control), 5)
    let_go, write = threading.Event(), control_checkpoint.write

    def slow(*given: Any, **named: Any) -> LastCheckpoint:
        assert let_go.wait(60)
        return write(*given, **named)

    monkeypatch.setattr(control_checkpoint, "write", slow)
    for _ in range(3):
        journal.upkeep(epoch=1, state=entered_state(0), now_ms=NOW_MS)
        record = append(journal, record, 2)
        journal.control.check(epoch=1)
    assert versions(disk, CONTROL, ".checkpoint.parquet") == []
    let_go.set()
    journal._upkeep.finish()
    (checkpointed,) = versions(disk, CONTROL, ".checkpoint.parquet")
    assert checkpointed == 7, "the head as the work found it"
    assert len(DeltaControlLog(disk.store).load().records) == record


@pytest.mark.usefixtures("small")
def test_upkeep_of_a_deposed_reign_says_so_at_the_next_look(disk: Disk) -> None:
    old, new = disk.open(), disk.open()
    append(old, claim(old.control), 5)
    claim(new.control, 2)
    with pytest.raises(CoordinatorError, match=r"COORDINATOR_DEPOSED.*version 7 was committed by another"):
        run(old)
    assert versions(disk, CONTROL, ".checkpoint.parquet") == []


@pytest.mark.usefixtures("small")
def test_a_deposed_reign_with_nothing_left_to_write_makes_no_checkpoint(disk: Disk) -> None:
    old, new = disk.open(), disk.open()
    append(old, claim(old.control), 5)
    old._control.flush(epoch=1, at_ms=0)
    claim(new.control, 2)
    with pytest.raises(CoordinatorError, match=r"COORDINATOR_DEPOSED.*the log goes on after version 7"):
        run(old)
    assert versions(disk, CONTROL, ".checkpoint.parquet") == []


@pytest.mark.parametrize("ahead_ms", [0, DAY_MS], ids=["", "the records are of tomorrow"])
def test_records_stand_in_entries_alone_for_seconds_only(disk: Disk, ahead_ms: int) -> None:
    """Readers of the table that are not ours find those in files (PROTOCOL 5)."""
    journal, state = disk.open(), entered_state(0)
    journal.control.append([replace(left(claim(journal.control)), at_ms=NOW_MS + ahead_ms)], epoch=1)
    for late_ms, version in ((0, 2), (upkeep.FLUSH_MS - 1, 2), (upkeep.FLUSH_MS, 3), (10 * upkeep.FLUSH_MS, 3)):
        journal.upkeep(epoch=1, state=state, now_ms=NOW_MS + late_ms)
        journal._upkeep.finish()
        assert versions(disk, CONTROL)[-1] == version
    assert DeltaTable(disk.store.uri(CONTROL)).to_pyarrow_table().num_rows == 4


def test_messages_that_a_start_evaluates_anew_count_towards_the_next_snapshot(tmp_path: Path) -> None:
    control = DeltaControlLog(Disk(tmp_path / "journal").store)
    number = claim(control)
    before = control.replay_cost(0)
    entered = replaced(
        left(number), kind=Kind.ENTERED, detail=ENTERED, message_type="order", ranges=((0, 3 * MESSAGES_PER_RECORD),)
    )
    control.append([entered, left(number + 1)], epoch=1)
    assert control.replay_cost(0) == before + 2 + 3


def test_files_that_a_start_evaluates_by_new_definitions_count_towards_the_next_snapshot(tmp_path: Path) -> None:
    control = DeltaControlLog(Disk(tmp_path / "journal").store)
    number = claim(control)
    control.forget_cost()
    control.append([left(number)], epoch=1)
    assert control.replay_cost(15_000) == 1
    applied = replaced(left(number + 1), kind=Kind.DEFINITIONS_APPLIED, detail={"definitions": {}, "resets": {}})
    control.append([applied], epoch=1)
    assert control.replay_cost(15_000) == 2 + 15_000
    # One that opens the log counts those that it finds: the first definitions are among them.
    control.load()
    assert control.replay_cost(15_000) == number + 2 + 2 * 15_000
