"""Sharing messages out equals giving out one after the other (R32 to R34)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from spark_queue.core.bitmaps.priority import Priorities
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.deciding.fairness import Contender, assign
from spark_queue.core.definitions.keys import PROPORTIONAL, ROUND_ROBIN
from spark_queue.core.definitions.parsing import parse

MESSAGES = 24


def candidate(position: int, *, backlog: int, held: int = 0, room: int | None = None, rows: BitMap64) -> Contender:
    left = backlog - held if room is None else min(room, backlog - held)
    return Contender(name=f"s{position}", position=position, unacknowledged=held, max_backlog=backlog, room=left, rows=rows.copy())


@st.composite
def competitors(draw: st.DrawFn) -> list[Contender]:
    """Subscriptions of any backlog, some not in the game; those in it match everything, or something of their own."""
    rows = BitMap64(range(MESSAGES))
    filters = st.one_of(st.just(rows), st.sets(st.integers(0, MESSAGES - 1)).map(BitMap64))
    found = []
    for position in sorted(draw(st.sets(st.integers(0, 5), min_size=1))):
        backlog = draw(st.integers(1, 12))
        held, room = draw(st.integers(0, backlog)), draw(st.integers(0, 12))
        found.append(candidate(position, backlog=backlog, held=held, room=room, rows=draw(filters)))
    return draw(st.permutations(found))


def one_by_one(model: str, candidates: Sequence[Contender], last: int, messages: int, order: Sequence[int]) -> dict[int, str]:
    """The model as AMPS tells it: who gets each message, one after the other."""
    held = {each.name: each.unacknowledged for each in candidates}
    room = {each.name: each.room for each in candidates}
    given: dict[int, str] = {}
    for bookmark in order:
        ready = sorted((each for each in candidates if room[each.name] and bookmark in each.rows), key=lambda each: each.position)
        if len(given) == messages:
            break
        if not ready:
            continue
        if model == PROPORTIONAL:
            winner = min(ready, key=lambda each: Fraction(held[each.name], each.max_backlog))
        else:
            winner = next((each for each in ready if each.position > last), ready[0])
        given[bookmark], last = winner.name, winner.position
        held[winner.name] += 1
        room[winner.name] -= 1
    return given


@given(
    st.sampled_from([PROPORTIONAL, ROUND_ROBIN]),
    competitors(),
    st.integers(-1, 5),
    st.one_of(st.just(MESSAGES), st.integers(0, MESSAGES)),
    st.one_of(st.just([0] * MESSAGES), st.lists(st.integers(0, 2), min_size=MESSAGES, max_size=MESSAGES)),
)
@example(
    PROPORTIONAL,
    [
        candidate(0, backlog=1, rows=BitMap64(range(MESSAGES))),
        candidate(1, backlog=2, rows=BitMap64([0, 1, 4, 5])),
        candidate(2, backlog=1, rows=BitMap64([0, 1, 4, 5])),
        candidate(3, backlog=1, room=0, rows=BitMap64(range(5))),
    ],
    -1,
    MESSAGES,
    [0] * MESSAGES,
)
# The second message goes to the first in line of those who have as much by then, not of all who want one.
@example(
    PROPORTIONAL,
    [
        candidate(0, backlog=12, held=2, room=1, rows=BitMap64(range(MESSAGES))),
        candidate(1, backlog=12, held=1, room=1, rows=BitMap64(range(MESSAGES))),
        candidate(2, backlog=12, held=0, room=2, rows=BitMap64(range(MESSAGES))),
    ],
    -1,
    2,
    [0] * MESSAGES,
)
def test_each_gets_as_many_of_each_kind_as_one_message_after_the_other_would_give(
    model: str, candidates: list[Contender], last: int, messages: int, priorities: list[int]
) -> None:
    order = sorted(range(MESSAGES), key=lambda row: -priorities[row])
    expected = one_by_one(model, candidates, last, messages, order)
    ranks = Priorities()
    ranks.add(np.arange(MESSAGES), np.array(priorities, dtype=np.uint64))

    # Who matches as many messages before it as all can take together is full when its turn comes, and tells it from no other.
    most = min(messages, sum(each.room for each in candidates))
    firsts = {each.name: [row for row in order if row in each.rows][:most] for each in candidates}

    def kind(row: int) -> frozenset[str]:
        return frozenset(name for name, first in firsts.items() if row in first)

    kinds = {row: kind(row) for row in range(MESSAGES)}
    found = assign(model, candidates, last=last, messages=messages, order=ranks)
    assert Counter((name, kinds[row]) for name, part in found.parts.items() for row in part) == Counter(
        (name, kinds[row]) for row, name in expected.items()
    )
    # No message twice, and of each kind the first ones.
    assert set().union(*(set(part) for part in found.parts.values())) == set(expected)
    assert found.last == next(
        (each.position for row in reversed(expected) for each in candidates if each.name == expected[row]), last
    )


def test_inky_blinky_and_clyde() -> None:
    """R33: a new message goes to Clyde, who has filled 40 % of his backlog, against 50 % and 75 %."""
    rows = BitMap64([7])
    inky, blinky, clyde = (
        candidate(position, backlog=backlog, held=held, rows=rows)
        for position, (held, backlog) in enumerate([(1, 2), (3, 4), (4, 10)])
    )
    found = assign(PROPORTIONAL, [inky, blinky, clyde], last=-1, messages=1, order=Priorities())
    assert found.parts == {"s0": BitMap64(), "s1": BitMap64(), "s2": rows}


def test_equal_ratios_go_to_the_first_subscription_whoever_asks() -> None:
    """R33: the first one found."""
    rows = BitMap64([7])
    late, early = candidate(1, backlog=4, held=2, rows=rows), candidate(0, backlog=2, held=1, rows=rows)
    assert assign(PROPORTIONAL, [late, early], last=-1, messages=1, order=Priorities()).parts["s0"] == rows


def test_what_is_kept_is_shared_out_no_further_than_there_is_room_for_all() -> None:
    """Where the queue's own limit was lowered meanwhile (R31)."""
    rows = BitMap64(range(8))
    first, second = candidate(0, backlog=9, rows=rows), candidate(1, backlog=9, rows=rows)
    first.kept, second.kept = BitMap64([0, 1, 2]), BitMap64([3, 4, 5])
    parts = assign(PROPORTIONAL, [first, second], last=-1, messages=4, order=Priorities()).parts
    assert parts == {"s0": BitMap64([0, 1, 2]), "s1": BitMap64([3])}


@pytest.mark.parametrize("model", [PROPORTIONAL, ROUND_ROBIN])
def test_cost_follows_ranges_and_parts_are_contiguous(model: str) -> None:
    rows = BitMap64()
    rows.add_range(0, 10_000_000)
    candidates = [candidate(position, backlog=2**63 - 1, rows=rows) for position in (1, 0)]
    found = assign(model, candidates, last=-1, messages=10_000_000, order=Priorities())
    assert {name: to_ranges(part) for name, part in found.parts.items()} == {
        "s1": ((0, 5_000_000),),
        "s0": ((5_000_000, 10_000_000),),
    }


@pytest.mark.parametrize(
    ("keys", "model"),
    [
        ({}, "proportional"),
        ({"fairness": "fast"}, "fast"),
        ({"semantics": "at-most-once"}, "round-robin"),
        ({"semantics": "at-most-once", "fairness": "round-robin"}, "round-robin"),
    ],
)
def test_fairness_is_proportional_unless_said_and_round_robin_at_most_once_r34(keys: dict[str, Any], model: str) -> None:
    definitions = {"message_types": {"json": {"topics": ["T"]}}, "queues": {"Q": {"underlying_topic": "T", **keys}}}
    assert parse(definitions).queue("Q").fairness == model
