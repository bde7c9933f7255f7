"""What is known of whose messages are, and what it costs to learn more of it (DESIGN 17.4)."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import MessageValue, Ownership, Stage


def test_nobody_owns_no_messages() -> None:
    ownership = Ownership("frankfurt")
    ownership.own(BitMap64(), term=1, owner="virginia")
    assert ownership == Ownership("frankfurt")


def _steps_of_news(ownership: Ownership, value: MessageValue, rows: BitMap64) -> int:
    """Return in how many steps of Python a value of messages is learned."""
    steps = 0

    def note(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return note

    traced = sys.gettrace()
    sys.settrace(note)
    try:
        assert ownership.lesser({state: BitMap64() for state in State}, rows, value) == rows
        ownership.begin_life(rows, value.life)
        ownership.own(rows, term=value.term, owner=value.owner)
    finally:
        sys.settrace(traced)
    return steps


@pytest.mark.parametrize("what", ["life", "term"])
def test_a_life_and_a_term_for_each_message_cost_what_one_for_all_costs(what: str) -> None:
    one, many = Ownership("frankfurt"), Ownership("frankfurt")
    for row in range(1_000):
        one.own(BitMap64([row]), term=999, owner="virginia")
        one.begin_life(BitMap64([row]), 999)
        many.own(BitMap64([row]), term=row if what == "term" else 999, owner="virginia")
        many.begin_life(BitMap64([row]), row if what == "life" else 999)
    value = MessageValue(1_000, Stage.PRESENT, 1_000, "virginia")
    assert _steps_of_news(many, value, BitMap64([7])) <= 1.1 * _steps_of_news(one, value, BitMap64([7]))
