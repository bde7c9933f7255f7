"""Merging the control log's files: no record is lost, no reader disturbed, no zombie believed (DESIGN 4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.journal import control_compaction, entry_writing, record_blocks
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.reader import read_setup
from spark_queue.journal.record_blocks import read_records
from spark_queue.journal.store import CONTROL
from tests.records import record_of
from tests.scenario.traits import MemoryTraits
from tests.unit.journal.control_on_disk import NOW_MS, files, filled, staged, table
from tests.unit.journal.journal_on_disk import Disk, claim, left


def test_merge_keeps_every_record_and_what_must_be_found_alone(disk: Disk) -> None:
    control, record = filled(disk)
    before = list(disk.open().records())
    control.flush(staged(disk), epoch=1, at_ms=NOW_MS)
    assert list(disk.open().records()) == before
    assert [(file.first, file.last) for file in files(disk)] == [(0, 0), (1, 1), (2, record - 1)]
    assert [each.kind for each in read_setup(disk.store)] == [Kind.JOURNAL_CREATED, Kind.DEFINITIONS_APPLIED]
    assert table(disk).transaction_version("c:coordinator") == 1
    control.append([left(record)], epoch=1)
    assert len(DeltaControlLog(disk.store).load().records) == record + 1
    assert control_compaction.stage(disk.store, files(disk), at_ms=NOW_MS) is None


def test_merge_is_one_delta_commit_that_changes_no_data(disk: Disk) -> None:
    """Any Delta reader sees the same rows before and after, and streams of the table see nothing new."""
    control, record = filled(disk)
    control.flush(staged(disk), epoch=1, at_ms=NOW_MS)
    lines = [json.loads(line) for line in disk.log_path(CONTROL, control.version).read_text().splitlines()]
    info = lines[0]["commitInfo"]
    assert (info["operation"], info["isBlindAppend"], info["sparkqueue"]["actions"]) == ("OPTIMIZE", False, len(lines) - 1)
    changes = [action for line in lines for kind, action in line.items() if kind in ("add", "remove")]
    assert [change["dataChange"] for change in changes] == [False] * (record - 2 + 1)
    assert sorted(table(disk).to_pyarrow_table().column("record").to_numpy()) == list(range(record))


def test_reader_that_opened_before_the_merge_reads_on(disk: Disk) -> None:
    control, record = filled(disk)
    opened = files(disk)
    control.flush(staged(disk), epoch=1, at_ms=NOW_MS)
    assert len(read_records(disk.store, opened)) == record


@pytest.mark.usefixtures("small")
def test_upkeep_merges_between_commits_and_files_stay_few(disk: Disk) -> None:
    journal = disk.open()
    record = claim(journal.control)
    for _ in range(300):
        journal.control.append([left(record)], epoch=1)
        record += 1
        journal.upkeep(epoch=1, state=JournalState(MemoryTraits()), now_ms=NOW_MS)
        journal._upkeep.finish()
    assert len(files(disk)) < 2 + 8 + 6
    assert [each.record for each in journal.records()] == list(range(record))
    assert table(disk).to_pyarrow_table().num_rows == record


def test_zombies_plan_is_refused(disk: Disk) -> None:
    control, record = filled(disk)
    merge = staged(disk)
    record = claim(DeltaControlLog(disk.store), 2)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        control.flush(merge, epoch=1, at_ms=NOW_MS)
    assert [each.record for each in disk.open().records()] == list(range(record))


def test_plan_that_lay_for_long_is_dropped(disk: Disk, small: None) -> None:
    """A host that slept between plan and commit must not let replaced files go at once."""
    journal = disk.open()
    record = claim(journal.control)
    for now_ms in (NOW_MS, NOW_MS, NOW_MS + control_compaction.PLAN_VALID_MS):
        for number in range(record, record + 6):
            journal.control.append([left(number)], epoch=1)
        record += 6
        journal.upkeep(epoch=1, state=JournalState(MemoryTraits()), now_ms=now_ms)
        journal._upkeep.finish()
    assert len(files(disk)) == 2 + 3, "the second round planned to merge the first two of three"


@pytest.mark.parametrize("landed", [False, True])
def test_doubt_about_a_merge_ends_the_reign(disk: Disk, monkeypatch: pytest.MonkeyPatch, *, landed: bool) -> None:
    """DESIGN 3.5: whether it landed or not, nothing may be answered or written any more."""
    control, record = filled(disk)
    merge = staged(disk)
    create_entry = entry_writing.create_entry

    def fail(*given: Any, **named: Any) -> None:
        if landed:
            create_entry(*given, **named)
        raise OSError("connection reset")

    monkeypatch.setattr(entry_writing, "create_entry", fail)
    with pytest.raises(JournalError, match="STORE_FAILED"):
        control.flush(merge, epoch=1, at_ms=NOW_MS)
    monkeypatch.undo()
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        control.check(epoch=1)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        control.append([left(record)], epoch=1)
    assert len(disk.open().records()) in (record, record + 1)
    assert claim(DeltaControlLog(disk.store), 2) >= record + 1


def test_columns_of_a_newer_version_survive_the_merge(disk: Disk) -> None:
    """A rollback of the software with newer records in the log: merging them keeps what is not understood."""
    _, record = filled(disk)
    path = Path(disk.store.path) / CONTROL / files(disk)[-1].path
    newer = pq.read_table(path).append_column("of_tomorrow", pa.array(["kept"]))
    pq.write_table(newer, path)
    (merged,) = staged(disk).files
    found = pq.read_table(Path(disk.store.path) / CONTROL / merged.path)
    assert found.column("of_tomorrow").to_pylist() == [None] * (record - 3) + ["kept"]


def test_records_that_are_missing_are_not_merged_over(disk: Disk) -> None:
    filled(disk)
    path = Path(disk.store.path) / CONTROL / files(disk)[-1].path
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
        staged(disk)


def test_durable_merge_reaches_the_disk_before_the_entry_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path / "journal", journal={"durability": "fsync"})
    control, _ = filled(disk)
    synced: list[str] = []
    monkeypatch.setattr("spark_queue.journal.store.force", synced.append)
    merge = staged(disk)
    control.flush(merge, epoch=1, at_ms=NOW_MS)
    data, entry = f"{disk.store.uri(CONTROL)}/{merge.files[0].path}", str(disk.log_path(CONTROL, control.version))
    assert synced.index(data) < synced.index(entry)
    assert entry not in synced[: synced.index(disk.store.uri(CONTROL))]


def test_large_file_is_read_from_a_record_on(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_blocks, "_ROW_GROUP_RECORDS", 4)
    control, record = filled(disk, 18)
    control.flush(staged(disk), epoch=1, at_ms=NOW_MS)
    for first in range(record + 1):
        assert [each.record for each in read_records(disk.store, files(disk), first=first)] == list(range(first, record))


def test_merge_keeps_every_column(disk: Disk) -> None:
    control, record = filled(disk, 1)
    full = record_of(
        kind=Kind.GRANTED, record=record, epoch=1, at_ms=5, message_type="order", queue="WORK", subscription="s", lease=3,
        ranges=((0, 4), (6, 8)), reason="r", due_at_ms=9, detail={"incarnation": [1, 2], "request": "q"},
    )  # fmt: skip
    control.append([full], epoch=1)
    control.flush(staged(disk), epoch=1, at_ms=NOW_MS)
    assert disk.open().records()[-1] == full
