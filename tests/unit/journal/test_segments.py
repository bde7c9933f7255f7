"""Cutting rows into pieces of files, against a row-by-row count."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import example, given
from msgspec import structs
from pyroaring import BitMap64

from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.order_key import OrderKeys
from spark_queue.core.bitmaps.priority import Priorities
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.message_files.origins import OriginNames, Origins
from spark_queue.core.message_files.segment import Segment
from spark_queue.journal.pieces import PIECES, cut_pieces, cut_places

BOOKMARKS = st.sets(st.integers(min_value=0, max_value=60))


def make_segments(cuts: list[int]) -> list[Segment]:
    return [
        Segment(
            message_type="t",
            first=first,
            until=until,
            path=f"f{first}",
            version=1,
            token="",
            entered_at_ms=0,
            published_at_ms=0,
            topic_min="a",
            topic_max="a",
            expires_null_count=until - first,
        )
        for first, until in pairwise(cuts)
    ]


def counts(*levels: set[int]) -> Counts:
    found = Counts()
    for level in levels:
        found.increment(BitMap64(level))
    return found


def by_row(segments: list[Segment], rows: set[int], delivered: Counts, cancelled: Counts) -> list[tuple[Any, ...]]:
    """Return the pieces the slow way: neighbours that agree in everything share one."""
    traits = []
    for bookmark in sorted(rows):
        segment = next(segment for segment in segments if segment.first <= bookmark < segment.until)
        traits.append((bookmark, segment.path, segment.first, delivered.of(bookmark), cancelled.of(bookmark)))
    pieces = []
    numbered = [(fact, fact[0] - place) for place, fact in enumerate(traits)]
    for _, run in groupby(numbered, key=lambda entry: (entry[1], *entry[0][1:])):
        found = [fact for fact, _ in run]
        bookmark, path, first, deliveries, cancels = found[0]
        pieces.append((path, bookmark - first, len(found), bookmark, deliveries, cancels, False))
    return pieces


@given(
    cuts=st.sets(st.integers(min_value=1, max_value=60), max_size=8),
    rows=BOOKMARKS,
    delivered=st.lists(BOOKMARKS, max_size=3),
    cancelled=st.lists(BOOKMARKS, max_size=2),
)
def test_pieces_are_what_counting_row_by_row_gives(
    cuts: set[int], rows: set[int], delivered: list[set[int]], cancelled: list[set[int]]
) -> None:
    segments = make_segments([0, *sorted(cuts), 61])
    deliveries, cancels = counts(*delivered), counts(*cancelled)
    table = cut_pieces(segments, BitMap64(rows), deliveries, cancels)
    assert table.schema == PIECES
    assert [tuple(row.values()) for row in table.to_pylist()] == by_row(segments, rows, deliveries, cancels)
    places = cut_places(segments, BitMap64(rows), deliveries, cancels)
    assert [structs.astuple(place) for place in places] == [
        (*row, None, None, None) for row in by_row(segments, rows, deliveries, cancels)
    ]


@given(cuts=st.sets(st.integers(min_value=1, max_value=60), max_size=3), rows=BOOKMARKS, keyed=BOOKMARKS)
def test_places_have_the_key_of_each_row(cuts: set[int], rows: set[int], keyed: set[int]) -> None:
    order_keys = OrderKeys()
    hashes = np.array([bookmark % 3 for bookmark in sorted(keyed)], dtype=np.uint64)
    order_keys.add(np.array(sorted(keyed), dtype=np.int64), hashes)
    segments = make_segments([0, *sorted(cuts), 61])
    places = cut_places(segments, BitMap64(rows), Counts(), Counts(), order_keys=order_keys)
    told = {place.bookmark + number: key for place in places for number, key in enumerate(place.keys or ())}
    assert told == {row: row % 3 if row in keyed else None for row in rows}


@given(cuts=st.sets(st.integers(min_value=1, max_value=60), max_size=3), rows=BOOKMARKS, ranked=BOOKMARKS, delivered=BOOKMARKS)
def test_places_have_the_priority_of_each_row(cuts: set[int], rows: set[int], ranked: set[int], delivered: set[int]) -> None:
    priorities = Priorities()
    values = np.array([2**64 - 1 - bookmark % 3 for bookmark in sorted(ranked)], dtype=np.uint64)
    priorities.add(np.array(sorted(ranked), dtype=np.int64), values)
    segments = make_segments([0, *sorted(cuts), 61])
    places = cut_places(segments, BitMap64(rows), counts(delivered), Counts(), priorities=priorities)
    told = {place.bookmark + number: value for place in places for number, value in enumerate(place.priorities or ())}
    assert told == {row: 2**64 - 1 - row % 3 if row in ranked else None for row in rows}


@example(rows={0, 1, 2, 3}, pulled=[(1, 2, "v")])
@given(rows=BOOKMARKS, pulled=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 9), st.sampled_from(["v", "t"])), max_size=6))
def test_pieces_of_an_instance_are_of_one_origin_each(rows: set[int], pulled: list[tuple[int, int, str]]) -> None:
    origins, plain, until = Origins(), {bookmark: ("frankfurt", bookmark) for bookmark in range(61)}, 0
    for number, (skipped, length, origin) in enumerate(pulled):
        first, until = until + skipped, min(61, until + skipped + length)
        if first < until:
            origins.add(first, [(0, until - first, origin, 100 * number)])
            plain |= {bookmark: (origin.upper(), 100 * number + bookmark - first) for bookmark in range(first, until)}
    names = OriginNames(origins, "frankfurt", {"v": "V", "t": "T"})
    segments = make_segments([0, 20, 61])
    table = cut_pieces(segments, BitMap64(rows), Counts(), Counts(), origins=names)
    told = {
        piece["bookmark"] + row: (piece["origin"], piece["origin_bookmark"] + row)
        for piece in table.to_pylist()
        for row in range(piece["rows"])
    }
    assert told == {bookmark: plain[bookmark] for bookmark in rows}
    assert sum(piece["rows"] for piece in table.to_pylist()) == len(rows), "each row once"
    others = [plain[one] != (plain[one - 1][0], plain[one - 1][1] + 1) or one - 1 not in rows or one == 20 for one in rows if one]
    assert table.num_rows == sum(others) + (0 in rows), "no more pieces than there are stretches"


def test_pieces_of_one_run_cost_no_more_than_one_piece() -> None:
    segments = make_segments([0, 2_000_000])
    table = cut_pieces(segments, to_bitmap([(500_000, 600_000)]), Counts(), Counts())
    assert table.to_pylist() == [
        {
            "path": "f0",
            "first_row": 500_000,
            "rows": 100_000,
            "bookmark": 500_000,
            "delivery_count": 0,
            "cancel_count": 0,
            "is_barrier": False,
        }
    ]


def test_pieces_of_single_rows_are_all_there() -> None:
    rows = BitMap64(range(0, 200_000, 2))
    table = cut_pieces(make_segments([0, 70_001, 200_000]), rows, Counts(), Counts())
    assert (table.num_rows, sum(table.column("rows").to_numpy())) == (100_000, 100_000)
    assert table.column("bookmark").to_pylist() == list(rows)
