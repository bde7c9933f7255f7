"""Traits of messages: what of them counts for a queue that begins in the middle of a file (R88, R90)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap64

from spark_queue.core.message_files.segment import EntryTraits, Segment, stretches

TRAITS = EntryTraits(
    rows=BitMap64(range(10, 18)),
    expires={5: BitMap64([11, 12]), 7: BitMap64([13, 16])},
    barriers=BitMap64([11, 15]),
    matches={"id > 1": BitMap64([10, 13, 17])},
    ranked=np.array([10, 12, 14]),
    priorities=np.array([3, 4, 5], dtype=np.uint64),
    keyed=np.array([11, 13, 17]),
    keys=np.array([6, 7, 8], dtype=np.uint64),
    failed=BitMap64([9, 12, 19]),
)


def test_nothing_counts_from_before_the_place_where_a_queue_begins() -> None:
    found = TRAITS.since(13)
    assert list(found.rows) == [13, 14, 15, 16, 17]
    assert {at_ms: list(rows) for at_ms, rows in found.expires.items()} == {5: [], 7: [13, 16]}
    assert list(found.barriers) == [15]
    assert {text: list(rows) for text, rows in found.matches.items()} == {"id > 1": [13, 17]}
    assert (found.ranked.tolist(), found.priorities.tolist()) == ([14], [5])
    assert (found.keyed.tolist(), found.keys.tolist()) == ([13, 17], [7, 8])
    assert list(found.failed) == [19]


def test_a_failure_counts_from_the_same_place_where_no_message_is() -> None:
    traits = EntryTraits(rows=BitMap64([20]), failed=BitMap64([9, 19]))
    assert list(traits.since(13).failed) == [19]
    assert traits.since(9) is traits


@pytest.mark.parametrize(
    ("retired", "is_retired"), [((False, False), False), ((True, False), False), ((False, True), False), ((True, True), True)]
)
def test_a_merged_file_is_retired_when_all_of_it_is(retired: tuple[bool, bool], *, is_retired: bool) -> None:
    """What a queue still needs of it must be looked at, and may be merged again."""
    common: dict[str, Any] = {
        "message_type": "order",
        "path": "merged.parquet",
        "token": "t",
        "entered_at_ms": 0,
        "published_at_ms": 0,
        "merged": True,
    }
    parts = [
        Segment(
            **common, first=first, until=first + 2, first_row=first, version=first, topic_min="T", topic_max="T",
            expires_null_count=2, retired=gone,
        )
        for first, gone in zip((0, 2), retired, strict=True)
    ]  # fmt: skip
    (whole,) = stretches(parts)
    assert (whole.first, whole.until, whole.retired) == (0, 4, is_retired)
