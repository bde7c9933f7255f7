"""Merging the control log's small files: one file for many commits, so that a start reads few of them (DESIGN 4)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_queue.journal.damage import damaged
from spark_queue.journal.entry_parts import NewFile
from spark_queue.journal.record_blocks import RecordBlock, read_block, stage_rows
from spark_queue.journal.store import CONTROL, Store

#: Records at which a file is large enough: reading it once more to merge it would save nothing.
FULL_FILE_RECORDS = 100_000

#: How long files that nothing names any more stay, in milliseconds: readers that opened the table before may still read them.
LEFTOVERS_KEPT_MS = 24 * 3600 * 1000

#: A staged plan that is older than this is dropped, in milliseconds: a host that slept in between would begin the time
#: that replaced files stay too early.
PLAN_VALID_MS = 3600 * 1000
_DATA_FILE = re.compile(r"control/(\d{20})-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Staged files, and the paths of those whose records they hold together."""

    files: Sequence[NewFile]
    removed: Sequence[str]
    at_ms: int


def plan(files: Sequence[RecordBlock]) -> list[Sequence[RecordBlock]]:
    """Return the neighbours to merge, each group into one file.

    In each stretch the newest files are merged, as far back as a file holds no more records than all newer ones together.
    The remaining files shrink at least by half from one to the next, so there are few; and each merge at least doubles the file
    that a record stands in, so a record is written again only as often as the log doubles.
    """
    groups: list[Sequence[RecordBlock]] = []
    for stretch in _stretches(files):
        newer = np.cumsum([0, *(file.records for file in reversed(stretch))])[-2::-1]
        first = next((at for at, file in enumerate(stretch) if file.records <= newer[at]), None)
        if first is not None:
            groups.append(stretch[first:])
    return groups


def _stretches(files: Sequence[RecordBlock]) -> list[list[RecordBlock]]:
    """Cut the files where one must stay alone, and where a stretch is as long as a file may become."""
    stretches: list[list[RecordBlock]] = [[]]
    records = 0
    for file in files:
        if file.is_separate or records >= FULL_FILE_RECORDS:
            stretches.append([])
            records = 0
        if not file.is_separate:
            stretches[-1].append(file)
            records += file.records
    return stretches


def stage(store: Store, blocks: Sequence[RecordBlock], *, at_ms: int) -> Merge | None:
    """Write the files that should stand in the place of others, and give the plan; None when it is well as it is."""
    groups = plan([block for block in blocks if block.is_file])
    if not groups:
        return None
    staged = [stage_rows(store, _united(group), _merged(store, group), at_ms=at_ms, data_change=False) for group in groups]
    return Merge(files=staged, removed=[file.path for group in groups for file in group], at_ms=at_ms)


def _united(group: Sequence[RecordBlock]) -> RecordBlock:
    return RecordBlock.new(group[0].first, group[-1].last, (kind for file in group for kind in file.kinds))


def _merged(store: Store, group: Sequence[RecordBlock]) -> pa.Table:
    # Whole, with columns that are unknown here: those of a newer version must survive a merge by an older one.
    rows = pa.concat_tables([read_block(store, file) for file in group], promote_options="default")
    if not np.array_equal(rows.column("record").to_numpy(), np.arange(group[0].first, group[-1].last + 1)):
        raise damaged(store, f"records are missing in control/{group[0].path} to {group[-1].path}", "They are not dense.")
    return rows


def data_files(store: Store) -> dict[str, int]:
    """Return the keys of the data files in the store, and when each was written by the store's own time, in milliseconds."""
    return {entry.key: entry.modified_ms for entry in store.list(CONTROL) if _DATA_FILE.fullmatch(entry.key)}


def leftovers(found: Mapping[str, int], files: Sequence[RecordBlock]) -> list[str]:
    """Return the keys of data files that may go: no listing names them, and they and the files of their records stood long enough.

    Replaced files, merged files that were never committed, and records of a reign that ended in the middle of a commit all
    are such. Times are the store's own, so no other clock matters.

    `found` was looked up before `files`: files that are committed in between are named. A later commit names files written within
    `PLAN_VALID_MS`, so their age keeps them, however long the caller sleeps.
    """
    if not found:
        return []
    settled_ms = max(found.values()) - LEFTOVERS_KEPT_MS
    named = {f"{CONTROL}/{file.path}" for file in files}
    settled = [file for file in files if found.get(f"{CONTROL}/{file.path}", settled_ms) < settled_ms]
    old = [key for key, written_ms in found.items() if written_ms < settled_ms and key not in named]
    return [key for key in old if _holds(settled, int(key[len(CONTROL) + 1 :][:20]))]


def _holds(files: Sequence[RecordBlock], record: int) -> bool:
    at = bisect_right(files, record, key=lambda file: file.first) - 1
    return at >= 0 and record <= files[at].last
