from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from spark_queue.core.bitmaps.numbers import BitSlicedInts

ROWS = st.sets(st.integers(0, 20), max_size=21)
NUMBER = st.one_of(st.integers(0, 9), st.sampled_from([2**20, 2**30 - 1]))
STEPS = st.lists(st.tuples(ROWS, NUMBER), max_size=20)


def play(steps: list[tuple[set[int], int]]) -> tuple[BitSlicedInts, Counter[int]]:
    numbers, model = BitSlicedInts(), Counter[int]()
    for rows, number in steps:
        given = BitMap64(rows)
        numbers.set(given, number)
        for row in rows:
            model[row] = number
        assert set(given) == rows, "the caller keeps its bitmap"
    return numbers, model


@given(STEPS, ROWS)
def test_split_gives_every_row_once_by_rising_number(steps: list[tuple[set[int], int]], rows: set[int]) -> None:
    numbers, model = play(steps)
    parts = list(numbers.split(BitMap64(rows)))
    assert [number for number, _ in parts] == sorted({model[row] for row in rows})
    assert {row: number for number, part in parts for row in part} == {row: model[row] for row in rows}


@given(STEPS, ROWS, NUMBER)
def test_rows_are_compared_with_a_number(steps: list[tuple[set[int], int]], rows: set[int], number: int) -> None:
    numbers, model = play(steps)
    less, equal = numbers.compare(BitMap64(rows), number)
    assert set(less) == {row for row in rows if model[row] < number}
    assert set(equal) == {row for row in rows if model[row] == number}
    assert numbers.largest(BitMap64(rows)) == max((model[row] for row in rows), default=0)


@given(STEPS)
def test_what_is_all_zero_is_as_at_first(steps: list[tuple[set[int], int]]) -> None:
    numbers, model = play(steps)
    assert numbers.all_zero == (not any(model.values()))
    numbers.set(BitMap64(range(21)), 0)
    assert numbers == BitSlicedInts()
