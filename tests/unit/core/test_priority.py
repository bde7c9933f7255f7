from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from spark_queue.core.bitmaps.priority import LEVELS_MAX, Priorities

VALUES = st.one_of(st.integers(0, 5), st.sampled_from([2**63, 2**64 - 1, 2**63 - 1]), st.integers(0, 2**64 - 1))


def ranked(values: dict[int, int], *, parts: int = 1) -> Priorities:
    priorities = Priorities()
    for part in np.array_split(np.array(sorted(values), dtype=np.int64), parts):
        priorities.add(part, np.array([values[int(bookmark)] for bookmark in part], dtype=np.uint64))
    return priorities


def naive(values: dict[int, int], rows: BitMap64, count: int) -> list[int]:
    order = sorted(rows, key=lambda row: (-values.get(row, -1), row))
    return sorted(order[:count])


@pytest.mark.parametrize("least_distinct", [0, LEVELS_MAX + 1])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_first_messages_are_those_of_the_highest_priority_and_then_the_oldest_r66(
    least_distinct: int, data: st.DataObject
) -> None:
    values = {1_000 + number: number for number in range(least_distinct)}
    values |= data.draw(st.dictionaries(st.integers(0, 400_000), VALUES, max_size=40))
    others = data.draw(st.sets(st.integers(0, 400_000), max_size=10))
    priorities = ranked(values, parts=data.draw(st.integers(1, 3)))
    rows = BitMap64(data.draw(st.lists(st.sampled_from(sorted({*values, *others, 0})), max_size=60)))
    count = data.draw(st.integers(0, 50))
    assert list(priorities.first(rows, count)) == naive(values, rows, count)
    bookmarks, found = priorities.of(rows)
    assert dict(zip(bookmarks.tolist(), found.tolist(), strict=True)) == {row: values[row] for row in rows if row in values}
    levels = [list(level) for level in priorities.levels(rows)]
    assert [row for level in levels for row in level] == sorted(rows, key=lambda row: (-values.get(row, -1), row))
    assert all(len({values.get(row, -1) for row in level}) == 1 for level in levels if level)
    priorities.keep(rows)
    assert list(priorities.first(rows, count)) == naive(values, rows, count)


def test_values_are_unsigned_and_none_ranks_below_zero_r66() -> None:
    values = {0: 0, 2: 2**63, 3: 2**63 - 1}
    priorities = ranked(values)
    rows = BitMap64(range(4))
    assert [list(priorities.first(rows, count)) for count in (1, 2, 3, 4)] == [[2], [2, 3], [0, 2, 3], [0, 1, 2, 3]]


def test_many_values_cost_a_few_bytes_for_each_message() -> None:
    values = np.random.default_rng(1).permutation(200_000).astype(np.uint64)
    priorities = Priorities()
    priorities.add(np.arange(200_000), values)
    rows = BitMap64()
    rows.add_range(0, 200_000)
    assert list(priorities.first(rows, 10)) == sorted(np.argsort(values)[-10:].tolist())
    size = sum(len(digit.serialize()) for digit in priorities._digits)
    assert size < 8 * 200_000
