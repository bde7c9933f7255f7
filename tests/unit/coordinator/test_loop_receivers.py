"""Receivers at the loop: a poll that comes with outcomes (R132, R135)."""

from __future__ import annotations

from typing import Any

import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.core.commands import OutcomeRows
from spark_queue.core.records import Incarnation
from spark_queue.core.state.lifecycle import State
from tests.unit.coordinator.loop_world import Planner, World


class Receiver:
    """One start of a receiver."""

    def __init__(self, world: World, subscription: str = "r", *, backlog: int = 2) -> None:
        self.world, self.backlog = world, backlog
        self.about: dict[str, Any] = {"queue": "WORK", "subscription": subscription}
        self.incarnation: Incarnation = world.ask(commands.DrawIncarnation, **self.about).incarnation
        self.calls, self.lease = 1, 0
        wishes = {"ack_mode": "receive", "max_backlog": backlog}
        assert world.ask(commands.Attach, **self.about, incarnation=self.incarnation, call=1, **wishes) == replies.Done()

    def poll(self) -> commands.ReceiverPoll:
        self.calls += 1
        return commands.ReceiverPoll(incarnation=self.incarnation, call=self.calls, finished=self.lease, limit=self.backlog)

    def next(self) -> replies.Granted:
        call = self.world.call(self.poll().to_next, **self.about)
        self.world.loop.step([call])
        assert isinstance(call.reply, replies.Granted), call.reply
        self.lease = call.reply.lease
        return call.reply

    def settle_call(self, first: int, until: int, *, poll: commands.ReceiverPoll | None) -> Call:
        said = OutcomeRows(outcome="acknowledge", ranges=((first, until),), lease=self.lease)
        return self.world.call(commands.SettleHeld, **self.about, outcomes=(said,) if first < until else (), poll=poll)


def settled(call: Call) -> replies.HeldSettled:
    assert isinstance(call.reply, replies.HeldSettled), call.reply
    return call.reply


def test_a_poll_that_comes_with_outcomes_has_the_room_that_they_free_in_the_same_commit(world: World) -> None:
    world.publish(3)
    receiver = Receiver(world)
    assert receiver.next().messages == 2
    before = len(world.storage.commits)
    call = receiver.settle_call(0, 2, poll=receiver.poll())
    world.loop.step([call])
    granted = settled(call).granted
    assert granted is not None
    assert (granted.lease, granted.messages) == (receiver.lease + 1, 1)
    assert [each.bookmark for each in granted.places] == [2]
    assert len(world.storage.commits) == before + 1


def test_outcomes_are_answered_at_once_where_nothing_is_there_for_their_poll(world: World) -> None:
    world.publish(2)
    receiver = Receiver(world)
    receiver.next()
    call = receiver.settle_call(0, 2, poll=receiver.poll())
    world.loop.step([call])
    assert settled(call) == replies.HeldSettled()


def test_a_repeat_of_the_call_gets_the_same_lease_again(world: World) -> None:
    world.publish(4)
    receiver = Receiver(world)
    receiver.next()
    call = receiver.settle_call(0, 2, poll=receiver.poll())
    world.loop.step([call])
    again = world.call(lambda **_: call.request)
    world.loop.step([again])
    assert settled(again) == settled(call)
    assert len(world.loop.engine.state.queues["WORK"].rows[State.LEASED]) == 2


def test_outcomes_act_beside_a_poll_that_is_refused(world: World) -> None:
    """What an older start has done counts, and it hears by a poll of its own that it is superseded (R133)."""
    world.publish(3)
    receiver = Receiver(world)
    receiver.next()
    stale = receiver.poll()
    newer = Receiver(world)
    call = receiver.settle_call(0, 2, poll=stale)
    world.loop.step([call])
    assert settled(call) == replies.HeldSettled()
    assert newer.next().messages == 1


@pytest.mark.parametrize("carried", [True, False])
def test_a_poll_that_comes_with_outcomes_shares_with_those_of_its_group(world: World, *, carried: bool) -> None:
    receivers = [Receiver(world, name, backlog=4) for name in ("a", "b")]
    other = Planner(world, "c")
    world.publish(2)
    world.nudge("json")
    polls = [other.next_call(limit=4), *(each.settle_call(0, 0, poll=each.poll() if carried else None) for each in receivers)]
    world.loop.step(polls)
    assert isinstance(polls[0].reply, replies.Granted)
    got = [polls[0].reply, *(settled(each).granted for each in polls[1:])]
    assert [0 if each is None else each.messages for each in got] == ([0, 1, 1] if carried else [2, 0, 0])
