"""Bookmarks as Roaring bitmaps and as half-open ranges; cost follows ranges, not messages (DESIGN 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from pyroaring import BitMap64

from spark_queue.core.records import Ranges


def to_bitmap(ranges: Iterable[tuple[int, int]]) -> BitMap64:
    """Make a bitmap of half-open ranges."""
    rows = BitMap64()
    for first, until in ranges:
        rows.add_range(first, until)
    return rows


def to_ranges(rows: BitMap64) -> Ranges:
    """Give the ascending half-open ranges of a bitmap."""
    # A bitmap XOR itself shifted by one keeps exactly the edges: the first row of each run and the row after its last.
    edges = (rows ^ rows.shift(1)).to_array()
    return tuple(pairwise(edges))[::2]


def oldest(rows: BitMap64, count: int) -> BitMap64:
    """Give the `count` lowest rows, or all of them when there are fewer, as a new bitmap."""
    if count >= len(rows):
        return rows.copy()
    return rows[:count]


def below(rows: BitMap64, until: int) -> BitMap64:
    """Give the rows before bookmark `until`, as a new bitmap."""
    return oldest(rows, rows.range_cardinality(0, until))
