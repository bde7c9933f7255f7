from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, oldest, to_bitmap, to_ranges

#: Near the beginning, around container borders, and far out: bookmarks have 64 bits.
BOOKMARKS = st.one_of(st.integers(0, 40), st.integers(65_500, 65_600), st.integers(2**40, 2**40 + 40))
ROWS = st.sets(BOOKMARKS, max_size=60)


@given(ROWS)
def test_ranges_are_half_open_ascending_disjoint_and_never_touch(rows: set[int]) -> None:
    edges = [edge for first_until in to_ranges(BitMap64(rows)) for edge in first_until]
    assert edges == sorted(set(edges))


@given(ROWS)
def test_ranges_and_bitmaps_say_the_same(rows: set[int]) -> None:
    ranges = to_ranges(BitMap64(rows))
    assert {row for first, until in ranges for row in range(first, until)} == rows
    assert set(to_bitmap(ranges)) == rows


@given(ROWS, st.integers(0, 70))
def test_oldest_gives_the_lowest_rows_as_a_new_bitmap(rows: set[int], count: int) -> None:
    source = BitMap64(rows)
    taken = oldest(source, count)
    assert list(taken) == sorted(rows)[:count]
    taken.add(2**50)
    assert set(source) == rows


@given(ROWS, BOOKMARKS)
def test_below_gives_the_rows_before_a_bookmark(rows: set[int], until: int) -> None:
    assert set(below(BitMap64(rows), until)) == {row for row in rows if row < until}


def test_cost_follows_ranges_not_messages() -> None:
    assert to_ranges(to_bitmap([(0, 10_000_000), (10_000_001, 10_000_002)])) == ((0, 10_000_000), (10_000_001, 10_000_002))
