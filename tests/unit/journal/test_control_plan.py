"""Which of the control log's files are merged: few files, few rewrites, however long the log (DESIGN 4)."""

from __future__ import annotations

import random

from spark_queue.journal import control_compaction
from spark_queue.journal.control_compaction import plan
from spark_queue.journal.record_blocks import RecordBlock


def test_plans_leave_few_files_and_write_a_record_seldom() -> None:
    """Cost over a long life: files grow with the logarithm of records, and so does how often one is written again."""
    rng = random.Random(7)
    held: list[RecordBlock] = []
    record, written = 0, 0
    for commit in range(20_000):
        size = rng.choice([1, 1, 2, 3, 40])
        kind = "definitions_applied" if rng.random() < 0.0002 else "granted"
        size = 1 if kind == "definitions_applied" else size
        held.append(RecordBlock(record, record + size - 1, f"{record:020d}", (kind, kind)))
        record += size
        if commit % 100 == 99:
            for group in plan(held):
                at = held.index(group[0])
                assert held[at : at + len(group)] == list(group)
                assert not any(file.is_separate for file in group)
                assert len(group) > 1
                held[at : at + len(group)] = [RecordBlock(group[0].first, group[-1].last, group[0].path, ("a", "z"))]
                written += held[at].records
    separate = sum(file.is_separate for file in held)
    assert [file.first for file in held[1:]] == [file.last + 1 for file in held[:-1]]
    assert len(held) - separate < 12 * (separate + 1 + record // control_compaction.FULL_FILE_RECORDS)
    assert written < record * 12


def test_large_files_are_not_written_again() -> None:
    full = control_compaction.FULL_FILE_RECORDS
    held = [RecordBlock(0, full - 1, "a", ("a", "z"))]
    held += [RecordBlock(full + at, full + at, f"{at}", ("a", "z")) for at in range(full + 5)]
    groups = plan(held)
    assert [(group[0].first, group[-1].last) for group in groups] == [(full, 2 * full - 1), (2 * full, 2 * full + 4)]
