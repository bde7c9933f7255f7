"""Which message files are worth merging (DESIGN 4): runs of small neighbours, at a bounded cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spark_queue.core.message_files.segment import Segment
from spark_queue.journal.message_compaction import MergeLimits, worth_merging


def files(*sizes: int) -> tuple[list[Segment], dict[str, int]]:
    segments = [
        Segment(
            message_type="order", first=number, until=number + 1, path=f"{number}", version=number, token="", entered_at_ms=0,
            published_at_ms=0, topic_min="A", topic_max="A", expires_null_count=1,
        )
        for number in range(len(sizes))
    ]  # fmt: skip
    return segments, {segment.path: size for segment, size in zip(segments, sizes, strict=True)}


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([1] * 3, []),
        ([1] * 4, [[0, 1, 2, 3]]),
        # A large file is copied again only with as much beside it.
        ([50, 1, 1, 1], []),
        ([50, 1, 1, 1, 1], [[1, 2, 3, 4]]),
        ([4, 2, 1, 1, 1], [[0, 1, 2, 3, 4]]),
        # Full files stay, and what stands between them is too little.
        ([100, 1, 1, 100, 1, 1, 1, 1], [[4, 5, 6, 7]]),
        # Targets are not exceeded.
        ([30] * 8, []),
        ([25] * 8, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ],
)
def test_runs_worth_merging(sizes: Sequence[int], wanted: list[list[int]]) -> None:
    segments, known = files(*sizes)
    found = worth_merging(segments, known, MergeLimits(files_min=4, target_bytes=100))
    assert [[file.first for file in run] for run in found] == wanted


def test_a_round_copies_no_more_than_its_share() -> None:
    segments, known = files(*[25] * 40)
    assert len(worth_merging(segments, known, MergeLimits(files_min=4, target_bytes=100, round_bytes=250))) == 3


def test_what_is_retired_or_not_in_the_table_is_left_alone() -> None:
    segments, known = files(*[1] * 9)
    segments[4] = replace(segments[4], retired=True)
    del known["8"]
    found = worth_merging(segments, known, MergeLimits(files_min=4, target_bytes=100))
    assert [[file.first for file in run] for run in found] == [[0, 1, 2, 3]]
