"""Bookmarks of here and of where messages were first published."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from spark_queue.core.message_files.origins import Origins

A, B, OWN = "a", "b", "own"


def test_rows_are_found_by_where_they_were_published_first() -> None:
    origins = Origins()
    origins.add(10, [(0, 3, A, 100), (3, 2, B, 7)])
    assert list(origins.here(A, BitMap64([99, 100, 102, 103]))) == [10, 12]
    assert list(origins.here(B, BitMap64([7, 8, 9]))) == [13, 14]
    assert not origins.here("nobody", BitMap64([7]))
    assert {origin: list(rows) for origin, rows in origins.of(BitMap64(range(9, 16)), own=OWN)} == {
        A: [100, 101, 102], B: [7, 8], OWN: [9, 15],
    }  # fmt: skip


def test_neighbours_that_go_on_are_one_stretch() -> None:
    origins = Origins()
    for row in range(1_000):
        origins.add(row, [(0, 1, A, 500 + row)])
    assert origins.between(10, 20, own=OWN) == [(0, 10, A, 510)]
    assert len(origins._to_here[A].stretches) == 1


def test_what_lies_between_is_told_in_order() -> None:
    origins = Origins()
    origins.add(5, [(0, 2, A, 0)])
    origins.add(9, [(0, 1, B, 4)])
    assert origins.between(0, 12, own=OWN) == [(0, 5, OWN, 0), (5, 2, A, 0), (7, 2, OWN, 7), (9, 1, B, 4), (10, 2, OWN, 10)]
    assert origins.between(6, 7, own=OWN) == [(0, 1, A, 1)]


def test_rows_that_are_held_are_known() -> None:
    origins = Origins()
    origins.add(0, [(0, 3, A, 10)])
    assert origins.holds([(0, 1, B, 0), (1, 5, A, 12)])
    assert not origins.holds([(0, 2, A, 8), (2, 4, A, 13)])


@given(st.lists(st.tuples(st.sampled_from([A, B, None]), st.integers(1, 6), st.integers(0, 3)), max_size=20))
def test_both_ways_agree_with_a_plain_list(files: list[tuple[str | None, int, int]]) -> None:
    origins, plain, published = Origins(), list[tuple[str, int]](), {A: 0, B: 0}
    for origin, rows, skipped in files:
        if origin is None:
            plain += [(OWN, len(plain) + row) for row in range(rows)]
            continue
        first = published[origin] + skipped
        published[origin] = first + rows
        origins.add(len(plain), [(0, rows, origin, first)])
        plain += [(origin, first + row) for row in range(rows)]
    told = [(origin, there + row) for _, rows, origin, there in origins.between(0, len(plain), own=OWN) for row in range(rows)]
    assert told == plain
    for here, (origin, there) in enumerate(plain):
        if origin != OWN:
            assert list(origins.here(origin, BitMap64([there]))) == [here]


def test_a_row_is_told_by_all_its_names() -> None:
    origins = Origins()
    origins.add(10, [(0, 3, A, 100)])
    origins.add_names([(9, 1, B, 6), (11, 2, B, 7), (9, 2, "c", 50)])
    assert {origin: list(rows) for origin, rows in origins.of(BitMap64([9, 10, 11]), own=OWN)} == {
        OWN: [9], A: [100, 101], B: [6, 7], "c": [50, 51],
    }  # fmt: skip
    assert list(origins.here(B, BitMap64([6, 7, 8, 9]))) == [9, 11, 12]
    assert origins.holds([(0, 1, B, 8)])
    assert {origin: list(rows) for origin, rows in origins.named(BitMap64([10, 11, 30]))} == {B: [11], "c": [10]}
    assert origins.between(9, 12, own=OWN) == [(0, 1, OWN, 9), (1, 2, A, 100)], "a row came from one place"


def test_rows_of_one_origin_may_be_here_under_it_first_and_also() -> None:
    origins = Origins()
    origins.add(0, [(0, 1, A, 4)])
    origins.add_names([(1, 1, A, 9)])
    assert {origin: list(rows) for origin, rows in origins.of(BitMap64([0, 1]), own=OWN)} == {A: [4, 9], OWN: [1]}


def test_only_names_that_nothing_has_are_new() -> None:
    origins = Origins()
    origins.add(0, [(0, 2, A, 10)])
    origins.add_names([(5, 1, A, 13)])
    assert origins.new_names([(20, 6, A, 9), (30, 1, B, 1)]) == [(20, 1, A, 9), (23, 1, A, 12), (25, 1, A, 14), (30, 1, B, 1)]
