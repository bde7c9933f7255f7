"""Shares at the loop: nobody gains by being first, and nobody waits longer than for the window (R32 to R35, DESIGN 8)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.protocol import wire
from tests.scenario.traits import PublishedMessage
from tests.unit.coordinator.loop_world import DEFINITIONS, WINDOW_MS, Planner, World, answered


def messages(calls: Sequence[Call]) -> list[int]:
    return [call.reply.messages for call in calls if isinstance(call.reply, replies.Granted)]


def wait_for(world: World, poll: Call) -> int:
    """Let the loop go on by its own timers until a poll is answered; returns how long that took in milliseconds."""
    began_ms = world.clock.monotonic_ms()
    while not answered(poll):
        assert world.loop.wait_ms() > 0, "the loop spins"
        world.clock.advance(world.loop.wait_ms())
        world.loop.step([])
    return world.clock.monotonic_ms() - began_ms


@pytest.mark.parametrize("model", ["proportional", "round-robin"])
def test_polls_of_one_group_share_whoever_comes_first(model: str) -> None:
    queue = {**DEFINITIONS["queues"]["WORK"], "fairness": model}
    world = World({**DEFINITIONS, "queues": {"WORK": queue}})
    planners = [Planner(world, f"s{number}") for number in range(3)]
    world.publish(10)
    # They are there when the group comes, so that the first of it finds some.
    world.ask(wire.Nudge, message_type="json")
    polls = [planner.next_call(limit=100) for planner in planners]
    before = len(world.storage.commits)
    world.loop.step(list(reversed(polls)))
    assert messages(polls) == [4, 3, 3]
    assert len(world.storage.commits) == before + 1


def test_a_poll_that_waits_has_its_share_of_what_a_newcomer_asks_for(world: World) -> None:
    waiting, newcomer = Planner(world, "a"), Planner(world, "b")
    poll = waiting.next_call(limit=100, wait_ms=1_000)
    world.loop.step([poll])
    world.clock.advance(700)
    world.publish(10)
    call = newcomer.next_call(limit=100)
    world.loop.step([world.call(wire.Nudge, message_type="json"), call])
    assert messages([poll, call]) == [5, 5]


def test_the_part_of_a_dead_subscription_is_served_at_the_end_of_its_window(world: World) -> None:
    """R33: the tie is the dead one's, so the living one gets nothing until then, and all of it then."""
    Planner(world, "dead").next()
    world.clock.advance(330)
    living = Planner(world, "living")
    world.publish(1)
    poll = living.next_call(wait_ms=1_000)
    world.loop.step([poll])
    assert not answered(poll)
    assert wait_for(world, poll) == WINDOW_MS - 330
    assert messages([poll]) == [1]


def test_the_part_of_one_that_leaves_goes_to_a_waiting_poll_at_once(world: World) -> None:
    leaver, waiting = Planner(world, "a"), Planner(world, "b")
    leaver.next()
    world.publish(1)
    world.ask(wire.Nudge, message_type="json")
    poll = waiting.next_call(wait_ms=1_000)
    world.loop.step([poll])
    assert not answered(poll)
    world.loop.step([leaver.leave_call()])
    assert messages([poll]) == [1]


def test_a_poll_that_is_over_says_that_more_may_come(world: World) -> None:
    """A run that takes what is there now must not end because others have a share."""
    other, asker = Planner(world, "a"), Planner(world, "b")
    other.next()
    world.publish(1)
    world.loop.step([world.call(wire.Nudge, message_type="json")])
    assert asker.next().withheld
    assert other.next().messages == 1
    assert not asker.next().withheld


def test_a_poll_says_that_more_may_come_where_what_others_have_kept_fills_the_backlog_of_the_queue() -> None:
    """R31: what it could take is nobody else's, but it has room for it only if the other does not come for its share."""
    world = World({**DEFINITIONS, "queues": {"WORK": {**DEFINITIONS["queues"]["WORK"], "max_backlog": 1}}})
    other, asker = (Planner(world, name, filter_sql=f"sequence = {kind}") for kind, name in enumerate("ab"))
    other.next()
    world.storage.publish("json", [PublishedMessage(topic="ORDERS", attributes={"sequence": kind}) for kind in (0, 1)])
    world.ask(wire.Nudge, message_type="json")
    assert asker.next().withheld
    world.clock.advance(WINDOW_MS)
    assert asker.next().messages == 1
    # From here on a lease fills it: nobody waits for the end of that.
    assert not other.next().withheld


def test_a_paused_queue_withholds_nothing_from_a_run_of_what_is_there_now(world: World) -> None:
    """Who waits for its share keeps it as long as the queue is paused, so such a run would wait as long."""
    other, asker = Planner(world, "a"), Planner(world, "b")
    other.next()
    world.publish(1)
    world.ask(wire.Nudge, message_type="json")
    assert asker.next().withheld
    world.ask(commands.Pause, queue="WORK")
    assert not asker.next().withheld


def test_a_caller_that_hung_up_has_no_share(world: World) -> None:
    gone, living = Planner(world, "a"), Planner(world, "b")
    poll = gone.next_call(wait_ms=1_000, abandoned=True)
    world.loop.step([poll])
    world.clock.advance(WINDOW_MS)
    world.publish(4)
    assert living.next().messages == 4


def test_a_caller_that_hangs_up_while_it_waits_has_no_share_any_more(world: World) -> None:
    gone, living = Planner(world, "a"), Planner(world, "b")
    hung_up: list[bool] = []
    poll = gone.next_call(wait_ms=WINDOW_MS)
    poll = Call(poll.request, lambda: bool(hung_up))
    world.loop.step([poll])
    hung_up.append(True)
    world.clock.advance(WINDOW_MS)
    world.publish(4)
    assert living.next().messages == 4


def test_what_is_kept_does_not_keep_the_loop_spinning_when_nobody_waits(world: World) -> None:
    world.publish(4)
    first, second = Planner(world, "a"), Planner(world, "b")
    polls = [first.next_call(limit=1), second.next_call(limit=1)]
    world.loop.step(polls)
    first.next()
    for _ in range(3):
        assert world.loop.wait_ms() > 0
        world.clock.advance(world.loop.wait_ms())
        world.loop.step([])
