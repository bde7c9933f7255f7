"""What is left over of the control log's files goes a day later, and nothing else does (DESIGN 4)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CoordinatorError
from spark_queue.journal import control_compaction, record_blocks, upkeep
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.record_blocks import RecordBlock
from spark_queue.journal.store import CONTROL, Store
from tests.scenario.traits import MemoryTraits
from tests.unit.journal.control_on_disk import DAY_S, NOW_MS, age, files, filled, leftovers, on_disk, staged
from tests.unit.journal.journal_on_disk import Disk, claim, left


def test_merge_that_was_never_committed_harms_nobody_and_goes_later(disk: Disk) -> None:
    """A kill between staging and commit: the next reign makes its own plan, and the leftover goes with the others."""
    _, record = filled(disk)
    (orphan,) = (file.path for file in staged(disk).files)
    assert len(DeltaControlLog(disk.store).load().records) == record
    again = DeltaControlLog(disk.store)
    record = claim(again, 2)
    again.flush(staged(disk), epoch=2, at_ms=NOW_MS)
    assert len(disk.open().records()) == record
    assert orphan in on_disk(disk)
    now_s = 10 * DAY_S
    age(disk, on_disk(disk), 2 * DAY_S, by=now_s)
    again.append([left(record, 2)], epoch=2)
    again.flush(epoch=2, at_ms=NOW_MS)
    gone = leftovers(disk)
    assert f"{CONTROL}/{orphan}" in gone
    disk.store.delete(gone)
    assert on_disk(disk) == {file.path for file in files(disk)}
    assert len(disk.open().records()) == record + 1


def test_replaced_files_stay_a_day_after_they_were_replaced(disk: Disk) -> None:
    """However old they are themselves: a reader may have opened the table just before."""
    control, record = filled(disk)
    old = on_disk(disk)
    control.flush(staged(disk), epoch=1, at_ms=NOW_MS)
    now_s = 10 * DAY_S
    age(disk, old, 5 * DAY_S, by=now_s)
    merged = on_disk(disk) - old
    age(disk, merged, DAY_S - 60, by=now_s)
    control.append([left(record)], epoch=1)
    control.flush(epoch=1, at_ms=NOW_MS)
    age(disk, on_disk(disk) - old - merged, 0, by=now_s)
    assert leftovers(disk) == []
    age(disk, merged, DAY_S + 60, by=now_s)
    named = {file.path for file in files(disk)}
    assert leftovers(disk) == sorted(f"{CONTROL}/{name}" for name in old - named)


def test_records_on_their_way_are_no_leftovers_however_clocks_stand(disk: Disk) -> None:
    """What a commit under way has staged may look old; nothing that the log holds covers it yet."""
    control, record = filled(disk)
    control.flush(staged(disk), epoch=1, at_ms=NOW_MS)
    (staged_now,) = record_blocks.stage_records(disk.store, [left(record)])
    age(disk, on_disk(disk), 3 * DAY_S, by=10 * DAY_S)
    (Path(disk.store.path) / CONTROL / f"{0:020d}-{0:032x}.parquet").write_bytes(b"")
    assert f"{CONTROL}/{staged_now.path}" not in leftovers(disk)


def test_what_only_a_young_file_holds_is_no_leftover_wherever_it_stands() -> None:
    """A reader may have opened the table before that file was in it, whatever older files hold of later records."""
    names = [f"{first:020d}-{0:032x}.parquet" for first in (0, 3, 10)]
    young, orphan, settled = (f"{CONTROL}/{name}" for name in names)
    log = [
        RecordBlock(first=first, last=first + 9, path=names[at], kinds=("granted", "removed")) for at, first in ((0, 0), (2, 10))
    ]
    found = {young: 2 * DAY_S * 1000, orphan: 0, settled: 0}
    assert control_compaction.leftovers(found, log) == []
    assert control_compaction.leftovers({**found, young: 0, f"{CONTROL}/x": 2 * DAY_S * 1000}, log) == [orphan]


def test_what_was_written_lately_is_no_leftover_although_old_files_hold_its_records(disk: Disk) -> None:
    """It may be the merge of another reign, on its way into the log."""
    filled(disk)
    age(disk, on_disk(disk), 3 * DAY_S, by=10 * DAY_S)
    before = on_disk(disk)
    staged(disk)
    (merged,) = on_disk(disk) - before
    age(disk, {merged}, DAY_S - 60, by=10 * DAY_S)
    disk.store.write(f"{CONTROL}/{999:020d}-{0:032x}.parquet", b"")
    age(disk, {f"{999:020d}-{0:032x}.parquet"}, 0, by=10 * DAY_S)
    assert leftovers(disk) == []
    age(disk, {merged}, DAY_S + 60, by=10 * DAY_S)
    assert leftovers(disk) == [f"{CONTROL}/{merged}"]


@pytest.mark.usefixtures("small")
def test_sweep_that_slept_leaves_the_files_of_the_next_reign_alone(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it sleeps after it has looked at the store: what the log names by then stays."""
    journal = disk.open()
    record = claim(journal.control)
    for number in range(record, record + 6):
        journal.control.append([left(number)], epoch=1)
        journal._control.flush(epoch=1, at_ms=NOW_MS)
    look = control_compaction.data_files

    def sleep_after_looking(store: Store) -> dict[str, int]:
        merge, later = staged(disk), DeltaControlLog(disk.store)
        age(disk, on_disk(disk), 2 * DAY_S, by=10 * DAY_S)
        claim(later, 2)
        found = look(store)
        later.flush(merge, epoch=2, at_ms=NOW_MS)
        return found

    monkeypatch.setattr(control_compaction, "data_files", sleep_after_looking)
    journal.upkeep(epoch=1, state=JournalState(MemoryTraits()), now_ms=NOW_MS)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        journal._upkeep.finish()
    assert {file.path for file in files(disk)} <= on_disk(disk)
    assert len(disk.open().records()) == record + 7


@pytest.mark.usefixtures("small")
def test_upkeep_deletes_leftovers_once_an_hour(disk: Disk) -> None:
    journal = disk.open()
    record = claim(journal.control)
    for now_ms in (NOW_MS, NOW_MS + upkeep.SWEEP_MS - 1, NOW_MS + upkeep.SWEEP_MS):
        for number in range(record, record + 6):
            journal.control.append([left(number)], epoch=1)
        record += 6
        age(disk, on_disk(disk), 2 * DAY_S, by=10 * DAY_S)
        journal.control.append([left(record)], epoch=1)
        record += 1
        orphan = Path(disk.store.path) / CONTROL / f"{0:020d}-{now_ms:032x}.parquet"
        orphan.write_bytes(b"")
        os.utime(orphan, (0, 0))
        journal.upkeep(epoch=1, state=JournalState(MemoryTraits()), now_ms=now_ms)
        journal._upkeep.finish()
        assert orphan.exists() == (now_ms == NOW_MS + upkeep.SWEEP_MS - 1)
    assert len(disk.open().records()) == record
