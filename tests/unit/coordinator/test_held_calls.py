"""A proof, and outcomes, wait for the next call of their subscription, and never past a lease's end (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_queue.coordinator.held_calls import OUTCOMES_HELD_MS, PROOF_HELD_MS, HeldCalls
from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands
from spark_queue.core.replies import Run


def call(command: commands.AnyCommand) -> Call:
    return Call(command, lambda: False)


def proof(subscription: str = "s") -> Call:
    return call(commands.Prove(queue="WORK", subscription=subscription, run=Run(incarnation=(1, 1), lease=1)))


def outcomes(*, polls: bool) -> Call:
    return call(commands.SettleHeld(queue="WORK", subscription="s", outcomes=(), polls=polls))


def poll(subscription: str = "s") -> Call:
    return call(commands.Next(queue="WORK", subscription=subscription, incarnation=(1, 1), call=1, finished=1, limit=1))


def leave() -> Call:
    return call(commands.Leave(queue="WORK", subscription="s", incarnation=(1, 1), call=0))


@pytest.mark.parametrize("next_call", [poll, leave])
def test_a_report_goes_before_the_next_call_of_its_subscription(next_call: Callable[[], Call]) -> None:
    held, proven = HeldCalls(), proof()
    assert held.release([proven], [], is_due=False, now_ms=0) == []
    assert held.due_ms == PROOF_HELD_MS
    follows = next_call()
    assert held.release([follows], [], is_due=False, now_ms=1) == [proven, follows]
    assert held.due_ms is None


def test_outcomes_go_with_the_poll_that_their_receiver_makes() -> None:
    """So one commit is for both; the poll's thread may be the slower one."""
    held, settled = HeldCalls(), outcomes(polls=True)
    assert held.release([settled], [], is_due=False, now_ms=0) == []
    follows = poll()
    assert held.release([follows], [], is_due=False, now_ms=1) == [settled, follows]
    assert held.release([settled], [follows], is_due=False, now_ms=2) == [settled]


def test_outcomes_wait_no_longer_than_that_takes() -> None:
    held, settled = HeldCalls(), outcomes(polls=True)
    held.release([settled], [], is_due=False, now_ms=0)
    assert held.due_ms == OUTCOMES_HELD_MS
    assert held.release([], [], is_due=False, now_ms=OUTCOMES_HELD_MS) == [settled]


def test_outcomes_beside_which_no_poll_comes_are_served_at_once() -> None:
    settled = outcomes(polls=False)
    assert HeldCalls().release([settled], [], is_due=False, now_ms=0) == [settled]


def test_a_report_waits_for_no_other_subscription() -> None:
    held, proven, other = HeldCalls(), proof(), poll("t")
    assert held.release([proven, other], [], is_due=False, now_ms=0) == [other]
    assert held.release([], [], is_due=False, now_ms=PROOF_HELD_MS - 1) == []
    assert held.release([], [], is_due=False, now_ms=PROOF_HELD_MS) == [proven]


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
