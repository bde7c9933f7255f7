"""The data files of a small journal's control log on disk, for the tests of merging them and of what is left over."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable

from spark_queue.core.records import Record
from spark_queue.journal import control_compaction
from spark_queue.journal.control_compaction import Merge
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.reader import open_control
from spark_queue.journal.record_blocks import RecordBlock
from spark_queue.journal.store import CONTROL
from tests.unit.journal.journal_on_disk import Disk, claim, left

DAY_S = 24 * 3600
NOW_MS = 1_000_000


def table(disk: Disk) -> DeltaTable:
    return DeltaTable(disk.store.uri(CONTROL))


def files(disk: Disk) -> list[RecordBlock]:
    """Return the data files of the log."""
    return sorted(open_control(disk.store).files.values())


def on_disk(disk: Disk) -> set[str]:
    return {path.name for path in (Path(disk.store.path) / CONTROL).glob("*.parquet")}


def filled(disk: Disk, commits: int = 8, make: Callable[[int], Record] = left) -> tuple[DeltaControlLog, int]:
    """Return a control log of a reign with some data files of one record, and the number of its next record."""
    control = DeltaControlLog(disk.store)
    record = claim(control)
    control.flush(epoch=1, at_ms=NOW_MS)
    for number in range(record, record + commits):
        control.append([make(number)], epoch=1)
        control.flush(epoch=1, at_ms=NOW_MS)
    return control, record + commits


def staged(disk: Disk) -> Merge:
    merge = control_compaction.stage(disk.store, files(disk), at_ms=NOW_MS)
    assert merge is not None
    return merge


def age(disk: Disk, names: set[str], age_s: int, *, by: float) -> None:
    for name in names:
        os.utime(Path(disk.store.path) / CONTROL / name, (by - age_s, by - age_s))


def leftovers(disk: Disk) -> list[str]:
    return control_compaction.leftovers(control_compaction.data_files(disk.store), files(disk))
