from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal import state_codec
from tests.scenario.traits import MemoryTraits

ROWS = st.sets(st.integers(0, 20), max_size=21)
STEPS = st.lists(st.tuples(st.sampled_from(["increment", "decrement", "forget"]), ROWS), max_size=30)


def play(steps: list[tuple[str, set[int]]]) -> tuple[Counts, Counter[int]]:
    counts, model = Counts(), Counter[int]()
    for step, rows in steps:
        getattr(counts, step)(BitMap64(rows))
        for row in rows:
            model[row] = {"increment": model[row] + 1, "decrement": max(0, model[row] - 1), "forget": 0}[step]
    return counts, model


@given(STEPS)
def test_counts_agree_with_a_dictionary(steps: list[tuple[str, set[int]]]) -> None:
    counts, model = play(steps)
    assert [counts.of(row) for row in range(21)] == [model[row] for row in range(21)]


@given(STEPS, ROWS)
def test_split_gives_every_row_once_by_rising_count(steps: list[tuple[str, set[int]]], rows: set[int]) -> None:
    counts, model = play(steps)
    parts = list(counts.split(BitMap64(rows)))
    assert [count for count, _ in parts] == sorted({model[row] for row in rows})
    assert {row: count for count, part in parts for row in part} == {row: model[row] for row in rows}


@given(STEPS, ROWS, st.integers(1, 6))
def test_at_least_gives_the_rows_that_reached_a_count(steps: list[tuple[str, set[int]]], rows: set[int], count: int) -> None:
    counts, model = play(steps)
    assert set(counts.at_least(count, BitMap64(rows))) == {row for row in rows if model[row] >= count}


@given(STEPS, ROWS)
def test_questions_and_steps_leave_the_caller_its_bitmap(steps: list[tuple[str, set[int]]], rows: set[int]) -> None:
    counts, _ = play(steps)
    asked = BitMap64(rows)
    counts.increment(asked)
    counts.decrement(asked)
    counts.forget(asked)
    list(counts.split(asked))
    assert set(asked) == rows


@given(STEPS, ROWS, st.integers(0, 6))
def test_counts_are_raised_and_never_lowered(steps: list[tuple[str, set[int]]], rows: set[int], count: int) -> None:
    counts, model = play(steps)
    counts.raise_to(count, BitMap64(rows))
    assert [counts.of(row) for row in range(21)] == [max(model[row], count if row in rows else 0) for row in range(21)]


def test_what_is_known_of_a_message_does_not_grow_with_its_deliveries() -> None:
    """R56: a poison message may come back for ever, and every step looks at all that is known."""
    sizes = []
    counts, state = Counts(), JournalState(MemoryTraits())
    for deliveries in (10, 5_000):
        while counts.of(7) < deliveries:
            counts.increment(BitMap64([7]))
        state.counts = counts  # type: ignore[attr-defined]  # made up
        sizes.append(len(state_codec.encode(state)))
    assert sizes[1] < 2 * sizes[0]
