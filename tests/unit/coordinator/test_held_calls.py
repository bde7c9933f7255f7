"""What nobody needs soon waits for the next call of its subscription, and never past a lease's end (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_queue.coordinator.held_calls import HELD_MS, HeldCalls
from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands
from spark_queue.core.replies import Run


def call(command: commands.AnyCommand) -> Call:
    return Call(command, lambda: False)


def proof(subscription: str = "s") -> Call:
    return call(commands.Prove(queue="WORK", subscription=subscription, run=Run(incarnation=(1, 1), lease=1)))


def taken() -> Call:
    return call(commands.RowsTaken(queue="WORK", subscription="s", incarnation=(1, 1), call=2, lease=1))


def start() -> Call:
    return call(commands.StartRun(queue="WORK", subscription="s"))


def poll(subscription: str = "s") -> Call:
    return call(commands.Next(queue="WORK", subscription=subscription, incarnation=(1, 1), call=1, finished=1, limit=1))


def leave() -> Call:
    return call(commands.Leave(queue="WORK", subscription="s", incarnation=(1, 1), call=0))


@pytest.mark.parametrize("next_call", [poll, leave])
def test_a_report_goes_before_the_next_call_of_its_subscription(next_call: Callable[[], Call]) -> None:
    held, proven = HeldCalls(), proof()
    assert held.release([proven], [], is_due=False, now_ms=0) == []
    assert held.due_ms == HELD_MS[commands.Prove]
    follows = next_call()
    assert held.release([follows], [], is_due=False, now_ms=1) == [proven, follows]
    assert held.due_ms is None


def test_the_word_that_rows_were_taken_goes_with_the_start_of_the_batch() -> None:
    held, word, begins = HeldCalls(), taken(), start()
    assert held.release([word], [], is_due=False, now_ms=0) == []
    assert held.release([begins], [], is_due=False, now_ms=1) == [word, begins]
    assert held.release([word], [], is_due=False, now_ms=2) == []
    assert held.release([], [], is_due=False, now_ms=2 + HELD_MS[commands.RowsTaken]) == [word], "of a plain sink nothing begins"


def test_a_report_that_comes_after_the_next_grant_waits_with_the_word_of_its_rows() -> None:
    """Its batch is proven by then, and one look at the log is enough for all three."""
    held, proven, word, begins = HeldCalls(), proof(), taken(), start()
    held.release([proven], [], is_due=False, now_ms=0)
    held.release([word], [], is_due=False, now_ms=1)
    assert held.release([], [], is_due=False, now_ms=HELD_MS[commands.Prove]) == []
    assert held.release([begins], [], is_due=False, now_ms=400) == [proven, word, begins]


def test_a_report_waits_for_no_other_subscription() -> None:
    held, proven, other = HeldCalls(), proof(), poll("t")
    assert held.release([proven, other], [], is_due=False, now_ms=0) == [other]
    assert held.release([], [], is_due=False, now_ms=HELD_MS[commands.Prove] - 1) == []
    assert held.release([], [], is_due=False, now_ms=HELD_MS[commands.Prove]) == [proven]


def test_a_report_whose_planner_waits_already_is_served_at_once() -> None:
    proven = proof()
    assert HeldCalls().release([proven], [poll()], is_due=False, now_ms=0) == [proven]


def test_nothing_is_held_past_what_is_due() -> None:
    """Its lease may be what ends."""
    held, proven = HeldCalls(), proof()
    held.release([proven], [], is_due=False, now_ms=0)
    assert held.release([], [], is_due=True, now_ms=1) == [proven]


def test_what_waits_at_the_end_is_sent_elsewhere() -> None:
    held, proven = HeldCalls(), proof()
    held.release([proven], [], is_due=False, now_ms=0)
    held.close()
    assert (proven.is_answered, proven.reply, held.due_ms) == (True, None, None)
