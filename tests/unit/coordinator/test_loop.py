"""The loop over a journal in memory: what is answered when, what shares a commit, and what ends a reign (DESIGN 6, 3.3 to 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.coordinator.loop import QUIET_MS
from spark_queue.core import commands, replies
from spark_queue.core.definitions import parsing
from spark_queue.core.records import Kind
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.protocol import wire
from tests.unit.coordinator.loop_world import DEFINITIONS, PERIOD_MS, WINDOW_MS, Planner, World, answered


def test_nobody_hears_of_a_grant_before_it_is_committed(world: World) -> None:
    world.publish(3)
    call = Planner(world).next_call()
    heard: list[object] = []
    world.storage.hook = lambda step, moment: heard.append((step, moment, call.reply))
    world.loop.step([call])
    assert ("control.append", "before", None) in heard
    assert ("control.append", "after", None) in heard
    assert isinstance(call.reply, replies.Granted)


def test_all_commands_of_a_group_share_one_commit(world: World) -> None:
    planners = [Planner(world, f"s{number}") for number in range(5)]
    world.publish(50)
    before = len(world.storage.commits)
    calls = [planner.next_call(limit=10) for planner in planners]
    world.loop.step(calls)
    assert [call.reply.messages for call in calls if isinstance(call.reply, replies.Granted)] == [10] * 5
    assert len(world.storage.commits) == before + 1


def test_finishing_one_lease_and_granting_the_next_are_one_commit(world: World) -> None:
    planner = Planner(world)
    world.publish(4)
    planner.next(limit=2)
    before, records = len(world.storage.commits), len(world.records())
    assert planner.next(limit=2).messages == 2
    assert len(world.storage.commits) == before + 1
    assert world.kinds(records) == [Kind.REMOVED, Kind.PROVEN, Kind.GRANTED]


def test_an_answer_without_a_commit_is_given_after_a_check_only(world: World) -> None:
    """P7: nothing there, row ranges and refusals too, are answered after the reign was looked at."""
    steps: list[str] = []
    planner = Planner(world)
    world.storage.hook = lambda step, moment: steps.append(f"{step} {moment}")
    planner.next()
    assert steps.count("control.check after") == 1
    steps.clear()
    assert isinstance(world.ask(commands.DrawIncarnation, queue="NONE", subscription="s"), wire.Failed)
    assert "control.check after" in steps
    steps.clear()
    world.loop.step([])
    assert steps == []


def wait_again_and_again(world: World, planner: Planner, heard: list[Any]) -> None:
    """Let a planner wait for a second ten times; keeps what it hears."""
    for _ in range(10):
        poll = planner.next_call(wait_ms=1_000, asks_again=True)
        world.loop.step([poll])
        while not answered(poll):
            world.clock.advance(max(1, world.loop.wait_ms()))
            world.loop.step([])
        heard.append(poll.reply)


def test_callers_that_wait_and_ask_again_share_a_look_for_some_seconds(world: World) -> None:
    """P7: that nothing came changes nothing; but one look in five seconds there is, so that an ended reign is left."""
    steps, heard = list[str](), list[Any]()
    planner = Planner(world)
    world.storage.hook = lambda step, moment: steps.append(f"{step} {moment}")
    wait_again_and_again(world, planner, heard)
    assert [reply.messages for reply in heard] == [0] * 10
    assert 2 <= steps.count("control.check after") <= 3


def test_who_waits_hears_nothing_from_a_deposed_reign_for_longer_than_a_look_serves(world: World) -> None:
    planner, heard = Planner(world), list[Any]()
    planner.next()
    world.reign()
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        wait_again_and_again(world, planner, heard)
    assert len(heard) <= QUIET_MS // 1_000
    assert [reply.messages for reply in heard] == [0] * len(heard)


@pytest.mark.parametrize("kind", ["a grant", "nothing there", "a refusal"])
def test_a_deposed_reign_answers_nothing(world: World, kind: str) -> None:
    planner = Planner(world)
    if kind == "a grant":
        world.publish(5)
    call = world.call(commands.DrawIncarnation, queue="NONE", subscription="s") if kind == "a refusal" else planner.next_call()
    world.reign()
    before = world.records()
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        world.loop.step([call])
    assert call.reply is None
    assert world.records() == before


def test_a_commit_whose_outcome_is_unknown_ends_the_reign_without_an_answer(world: World) -> None:
    planner = Planner(world)
    world.publish(5)
    call = planner.next_call()

    def lose_reply(step: str, moment: str) -> None:
        if (step, moment) == ("control.append", "after"):
            raise OSError("the connection was cut")

    world.storage.hook = lose_reply
    with pytest.raises(JournalError, match="STORE_FAILED"):
        world.loop.step([call])
    assert not answered(call)
    world.storage.hook = lambda *_: None
    world.loop, _ = world.reign()
    world.loop.step([call])
    # The commit had landed: the repeat gets that lease, and nothing is granted twice.
    assert isinstance(call.reply, replies.Granted)
    assert (call.reply.lease, world.kinds().count(Kind.GRANTED)) == (1, 1)


def test_a_renewal_that_waited_is_heard_before_the_lease_ends(world: World) -> None:
    world.publish(5)
    planner = Planner(world)
    planner.next()
    world.clock.advance(PERIOD_MS + 50)
    renew = world.call(commands.Renew, lease=1, incarnation=planner.incarnation, call=0, **planner.common)
    world.loop.step([renew])
    assert renew.reply == replies.Renewed(lease_period_ms=PERIOD_MS)
    assert Kind.RETURNED not in world.kinds()


def test_a_new_reign_gives_living_holders_time_and_commits_it_first(world: World) -> None:
    world.publish(5)
    planner = Planner(world)
    planner.next()
    world.clock.advance(PERIOD_MS * 3)
    before = len(world.records())
    world.loop, _ = world.reign()
    assert world.kinds(before) == [Kind.EPOCH_CLAIMED, Kind.RENEWED]
    renewed = world.records()[-1]
    assert renewed.due_at_ms is not None
    assert renewed.due_at_ms - renewed.at_ms == pytest.approx(PERIOD_MS / 3, abs=1)
    renew = world.ask(commands.Renew, lease=1, incarnation=planner.incarnation, call=0, **planner.common)
    assert renew == replies.Renewed(lease_period_ms=PERIOD_MS)


def test_planners_hear_how_long_a_lease_lasts_also_when_that_changes(world: World) -> None:
    """What a query read of the definitions when it was loaded may be long past."""
    world.publish(2)
    planner = Planner(world)
    assert planner.next(limit=1).lease_period_ms == PERIOD_MS
    shorter = {**DEFINITIONS["queues"]["WORK"], "lease_period": "2s"}
    assert world.ask(commands.Apply, definitions={**DEFINITIONS, "queues": {"WORK": shorter}}) == replies.Done()
    assert world.ask(commands.DrawIncarnation, **planner.common).lease_period_ms == 2_000
    renew = world.ask(commands.Renew, lease=planner.lease, incarnation=planner.incarnation, call=0, **planner.common)
    assert renew == replies.Renewed(lease_period_ms=2_000)
    assert planner.next(limit=1).lease_period_ms == 2_000


def test_an_idle_loop_is_over_and_a_called_one_is_not(world: World) -> None:
    idle_ms = parsing.parse(DEFINITIONS).journal.coordinator_idle_ms
    world.clock.advance(idle_ms - 1)
    assert not world.loop.is_over()
    Planner(world)
    world.clock.advance(idle_ms - 1)
    assert not world.loop.is_over()
    world.clock.advance(1)
    assert world.loop.is_over()


def test_a_step_that_takes_long_is_no_idle_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who called meanwhile is heard after it."""
    idle_ms, step, heard = parsing.parse(DEFINITIONS).journal.coordinator_idle_ms, world.loop.step, []

    def step_long(calls: Sequence[Call]) -> None:
        heard.append(list(calls))
        world.clock.advance(idle_ms)
        step(calls)

    late = world.call(wire.Stop)
    waiting = iter([[], [late]])
    monkeypatch.setattr(world.loop._inbox, "take", lambda _: next(waiting))
    monkeypatch.setattr(world.loop, "step", step_long)
    world.loop.run()
    assert heard == [[], [late]]


def test_a_served_loop_is_over_when_told_only() -> None:
    world = World(ends_idle=False)
    world.clock.advance(10 * parsing.parse(DEFINITIONS).journal.coordinator_idle_ms)
    assert not world.loop.is_over()
    assert world.ask(wire.Stop) == replies.Done()
    assert world.loop.is_over()


@pytest.mark.parametrize("first", [True, False])
def test_a_repeat_of_a_call_is_answered_as_the_first(world: World, first: bool) -> None:
    """A reply was lost: within the reign, and after its end (DESIGN 6)."""
    world.publish(5)
    planner = Planner(world)
    call = planner.next_call(limit=2)
    world.loop.step([call])
    if not first:
        world.loop, _ = world.reign()
    repeat = Call(call.request, lambda: False)
    world.loop.step([repeat])
    assert isinstance(call.reply, replies.Granted)
    assert isinstance(repeat.reply, replies.Granted)
    assert (repeat.reply.lease, repeat.reply.messages) == (call.reply.lease, call.reply.messages)
    assert world.kinds().count(Kind.GRANTED) == 1


@pytest.mark.parametrize("crash", [False, True], ids=["in the same reign", "in the next reign"])
def test_a_settlement_that_is_asked_for_again_takes_effect_once(world: World, *, crash: bool) -> None:
    """Its first reply was lost, and meanwhile the message is leased to another: a second cancel would break that lease."""
    world.publish(1)
    Planner(world, "a").next()
    cancel = commands.OutcomeRows(outcome="cancel", ranges=((0, 1),))
    calls = [world.call(commands.Settle, queue="WORK", outcomes=(cancel,)) for _ in range(2)]
    again = Call(calls[0].request, lambda: False)
    world.loop.step([calls[0]])
    world.clock.advance(WINDOW_MS)
    assert Planner(world, "b").next().messages == 1
    if crash:
        world.loop, world.journal = world.reign()
    before = world.records()
    world.loop.step([again])
    assert again.reply == replies.Settled(repeated=1)
    assert world.records() == before
    world.loop.step([calls[1]])
    assert calls[1].reply == replies.Settled(cancelled=1), "another request is another cancel (R38, sublet)"


def test_a_purge_that_is_asked_for_again_removes_nothing_more_and_answers_the_same(world: World) -> None:
    world.publish(3)
    Planner(world).next(limit=1)
    purge = world.call(commands.Purge, queue="WORK")
    again = Call(purge.request, lambda: False)
    world.loop.step([purge])
    world.publish(2)
    world.loop.step([again])
    assert [purge.reply, again.reply] == [replies.Purged(purged=2, leased=1)] * 2
    assert world.kinds().count(Kind.REMOVED) == 1


@pytest.mark.parametrize(
    ("kind", "fields"), [(commands.Purge, {}), (commands.SettleWhere, {"outcome": "expire"})], ids=["purge", "settle"]
)
def test_a_filter_is_refused_by_name_before_anything_happens(world: World, kind: type[Any], fields: dict[str, Any]) -> None:
    world.publish(3)
    reply = world.ask(kind, queue="WORK", where="a > 1", **fields)
    assert isinstance(reply, wire.Failed)
    assert reply.code == "EXPRESSION_INVALID"


def test_a_pause_that_is_asked_for_again_does_not_undo_the_unpause_after_it(world: World) -> None:
    world.publish(1)
    pause, unpause = world.call(commands.Pause, queue="WORK"), world.call(commands.Unpause, queue="WORK")
    again = Call(pause.request, lambda: False)
    for call in (pause, unpause, again):
        world.loop.step([call])
        assert call.reply == replies.Done()
    assert world.kinds()[-2:] == [Kind.PAUSED, Kind.UNPAUSED]


def test_a_poll_on_a_paused_queue_is_served_as_soon_as_the_pause_ends(world: World) -> None:
    world.publish(1)
    world.ask(wire.Nudge, message_type="json")
    planner = Planner(world)
    assert world.ask(commands.Pause, queue="WORK") == replies.Done()
    poll = planner.next_call(wait_ms=1_000)
    world.loop.step([poll])
    told = [poll.reply]
    assert world.ask(commands.Unpause, queue="WORK") == replies.Done()
    told.append(poll.reply)
    assert [isinstance(reply, replies.Granted) and reply.messages for reply in told] == [False, 1]


def test_definitions_and_unsubscribes_that_are_asked_for_again_take_effect_once(world: World) -> None:
    world.publish(2)
    planner = Planner(world)
    planner.next()
    planner.next()
    for request in (
        world.call(commands.Apply, definitions=DEFINITIONS, reset=("WORK",)).request,
        world.call(commands.Unsubscribe, queue="WORK", subscription="s").request,
    ):
        calls = [Call(request, lambda: False) for _ in range(2)]
        world.loop.step([calls[0]])
        before = world.records()
        world.loop.step([calls[1]])
        assert [call.reply for call in calls] == [replies.Done(), replies.Done()]
        assert world.records() == before
