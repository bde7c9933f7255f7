"""What holds of every command: records are dense, stamped, named, and handed over once."""

from __future__ import annotations

import pytest

from spark_queue.core import commands
from spark_queue.core.commands import ERROR_TEXT_LIMIT
from spark_queue.core.engine import Engine
from spark_queue.core.records import Kind, Outcome
from tests.deciding import decide
from tests.records import detail_of
from tests.scenario import Scenario, run_scenario

BEGINNING = """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
publish T 0..3
planner p1 Q/s1
"""


def begin(more: str = "") -> Scenario:
    return run_scenario(BEGINNING + more)


def test_take_gives_records_once() -> None:
    engine = begin().world.engine
    said = commands.OutcomeRows(outcome=Outcome.ACKNOWLEDGE, ranges=((0, 2),))
    engine.decide(commands.Settle(queue="Q", outcomes=(said,)), now_ms=1)
    assert [record.kind for record in engine.drain_records()] == [Kind.REMOVED]
    assert engine.drain_records() == []


def test_records_carry_the_epoch_and_the_request_they_were_made_for() -> None:
    world = begin("crash").world
    planner = world.planners["p1"]
    world.decide(
        commands.Next(queue="Q", subscription="s1", incarnation=planner.incarnation, call=9, finished=0, limit=2, request="r-1")
    )
    (granted,) = world.engine.drain_records()
    assert (granted.kind, granted.epoch, detail_of(granted)["request"], detail_of(granted)["call"]) == ("granted", 2, "r-1", 9)


def test_proving_a_lease_and_granting_the_next_is_one_group() -> None:
    scenario = begin("next p1 limit=2")
    scenario.run("next p1 limit=2")
    assert [record.kind for record in scenario.world.committed[-3:]] == ["removed", "proven", "granted"]


def test_record_times_never_go_back_when_the_clock_does() -> None:
    scenario = begin("wait 1h\nnext p1 limit=1")
    before_ms = scenario.world.committed[-1].at_ms
    scenario.world.clock.set_wall(before_ms - 60_000)
    scenario.run("publish T 4\nnext p1 limit=1")
    assert {record.at_ms for record in scenario.world.committed[-3:]} == {before_ms}


def test_a_draw_changes_nothing_and_comes_after_all_earlier_ones() -> None:
    world, draw = begin().world, commands.DrawIncarnation(queue="Q", subscription="s1")
    drawn = [world.decide(draw).incarnation, world.decide(draw).incarnation]
    assert world.engine.drain_records() == []
    world.recover()
    drawn.append(world.decide(draw).incarnation)
    assert drawn == [(1, 2), (1, 3), (2, 1)]
    assert drawn == sorted(drawn)


def known_beyond_the_log(engine: Engine) -> dict[str, set[str]]:
    """Return the subscriptions, or owners, that are known of each queue."""
    known = {queue: set(each.heard_at_ms) | set(each._newest) for queue, each in engine.sessions.items()}
    for queue, shares in engine._shares.items():
        known.setdefault(queue, set()).update(shares._polls, shares.kept)
    for queue, delay in engine._transfer_delays.items():
        known.setdefault(queue, set()).update(delay._means_ms)
    return known


@pytest.mark.parametrize("end", ["unsubscribe Q/s1", "wait 6d\nnext p2 limit=1\ntick 2d"])
def test_what_is_known_of_a_subscription_ends_with_it(end: str) -> None:
    """Or a reign of months would know everybody who ever came."""
    scenario = begin("planner p2 Q/s2\nnext p1 limit=1\nnext p2 limit=1")
    engine = scenario.world.engine
    assert known_beyond_the_log(engine) == {"Q": {"s1", "s2"}}
    scenario.run(end)
    assert known_beyond_the_log(engine) == {"Q": {"s2"}}


def test_what_is_known_of_a_queue_ends_with_it_but_no_place_is_given_twice() -> None:
    """P1: a planner of then would be taken for one of now."""
    world, draw = begin("planner p2 Q/s2").world, commands.DrawIncarnation(queue="Q", subscription="s1")
    definitions = dict(world.state.definitions.stored)
    assert known_beyond_the_log(world.engine) == {"Q": {"s1", "s2"}}
    world.decide(commands.Apply(definitions=definitions | {"queues": {}}))
    assert known_beyond_the_log(world.engine) == {}
    world.decide(commands.Apply(definitions=definitions))
    assert world.decide(draw).incarnation == (1, 3)
    assert known_beyond_the_log(world.engine) == {"Q": set()}


def test_error_texts_are_kept_up_to_a_limit() -> None:
    scenario = begin("next p1\nstart p1")
    scenario.run(f'end p1 expire 0 error="{"x" * 5_000}", cancel 1 error=short\nprove p1')
    (letter,) = scenario.world.state.queues["Q"].dead_letters
    assert letter.error == "x" * ERROR_TEXT_LIMIT


def test_a_tick_with_nothing_due_makes_no_record() -> None:
    scenario = begin("next p1")
    count = len(scenario.world.committed)
    scenario.run("tick 1ms\ntick 1ms")
    assert len(scenario.world.committed) == count


def test_a_reign_over_an_idle_queue_records_its_claim_and_nothing_else() -> None:
    """Only what somebody may still hold is given time: a coordinator that starts and stops all day makes no log."""
    scenario = begin("next p1 limit=2\nnext p1 limit=2")
    before = len(scenario.world.committed)
    scenario.run("crash")
    assert [record.kind for record in scenario.world.committed[before:]] == [Kind.EPOCH_CLAIMED, Kind.RENEWED]
    scenario.run("settle Q acknowledge 2..3")
    before = len(scenario.world.committed)
    scenario.run("crash")
    assert [record.kind for record in scenario.world.committed[before:]] == [Kind.EPOCH_CLAIMED]


def test_expirations_that_have_passed_are_forgotten() -> None:
    scenario = begin("next p1 limit=1\npublish T 4 expires=10s, T 5 expires=2h")
    ledger = scenario.world.state.queues["Q"]
    scenario.run("tick 10s")
    assert [list(rows) for rows in ledger.expires.values()] == [[5]]


def test_next_due_names_only_what_a_tick_can_still_do() -> None:
    scenario = begin("due never\nnext p1\nstart p1\nend p1 cancel 0 after=5s\nprove p1\ndue 5s\ntick 5s")
    # The delay is over and nobody asked; the publish that comes is the next thing to wait for.
    scenario.run("due never\ncrash\ndue now\ntick 1ms\ndue never")


def test_a_repeat_is_answered_again_however_many_calls_of_planners_came_between() -> None:
    """R13: messages that came after a purge whose reply was lost are not purged by its repeat."""
    scenario = begin()
    engine, now_ms, purge = scenario.world.engine, scenario.world.now_ms, commands.Purge(queue="Q", request="lost")
    answer = decide(engine, purge, now_ms=now_ms)
    incarnation = scenario.world.planners["p1"].incarnation
    for call in range(100, 8_500):
        planner = commands.Attach(
            queue="Q", subscription="s1", incarnation=incarnation, call=call, ack_mode="auto", max_backlog=1, request=f"r{call}"
        )
        decide(engine, planner, now_ms=now_ms + call)
    scenario.run("publish T 4..5")
    assert decide(engine, purge, now_ms=now_ms + 30_000) == answer
    scenario.run("state Q available 4..5")
