"""Long polls and timers over a journal in memory: who is woken, by what, and when (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.coordinator import loop
from spark_queue.coordinator.inbox import Call
from spark_queue.coordinator.loop import POLLED_MS, ROUND_MS
from spark_queue.core import commands, replies
from spark_queue.core.message_files.segment import Segment, TraitRequest
from spark_queue.core.records import Kind
from spark_queue.errors import JournalError
from spark_queue.ports import MessageLogEntry
from spark_queue.protocol import wire
from tests.memory_journal import MemoryMessageLog
from tests.unit.coordinator.loop_world import DEFINITIONS, PERIOD_MS, Planner, World, answered


def test_a_long_poll_waits_and_is_served_by_a_nudge(world: World) -> None:
    planner = Planner(world)
    poll = planner.next_call(wait_ms=1_000)
    world.loop.step([poll])
    assert not answered(poll)
    world.publish(2)
    nudge = world.call(wire.Nudge, message_type="json")
    world.loop.step([nudge])
    assert isinstance(poll.reply, replies.Granted)
    assert (poll.reply.messages, nudge.reply) == (2, replies.Done())


def test_whoever_waits_for_messages_hears_before_their_publisher(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    poll, told, answer = Planner(world).next_call(wait_ms=1_000), list[Call](), Call.answer

    def note(call: Call, reply: wire.AnyReply | None, pieces: pa.Table | None = None) -> None:
        told.append(call)
        answer(call, reply, pieces)

    monkeypatch.setattr(Call, "answer", note)
    world.loop.step([poll])
    world.publish(2)
    nudge = world.call(wire.Nudge, message_type="json")
    world.loop.step([nudge])
    assert told == [poll, nudge]


def test_of_too_many_polls_the_oldest_waits_no_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a thread, and who renews a lease needs one, too."""
    monkeypatch.setattr(loop, "WAITING_MAX", 2)
    polls = [Planner(world, each).next_call(wait_ms=1_000) for each in ("a", "b", "c")]
    world.loop.step(polls)
    assert [answered(each) for each in polls] == [True, False, False]
    assert isinstance(polls[0].reply, replies.Granted)
    assert polls[0].reply.messages == 0


def test_a_long_poll_finds_messages_that_nobody_nudged_for(world: World) -> None:
    poll = Planner(world).next_call(wait_ms=1_000)
    world.loop.step([poll])
    world.publish(2)
    assert 0 < world.loop.wait_ms() <= POLLED_MS
    world.clock.advance(world.loop.wait_ms())
    world.loop.step([])
    assert isinstance(poll.reply, replies.Granted)
    assert poll.reply.messages == 2


def test_a_poll_hears_of_a_gap_and_no_look_without_a_listing_makes_it_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    planner = Planner(world)

    def gap(log: MemoryMessageLog, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        if finds_gaps:
            raise JournalError("LOG_GAP", path="here", version=after_version + 1, next_step="")
        return iter(())

    monkeypatch.setattr(MemoryMessageLog, "tail", gap)
    for _ in range(2):
        poll = planner.next_call(wait_ms=0)
        world.loop.step([poll])
        assert isinstance(poll.reply, wire.Failed)
        assert poll.reply.code == "LOG_GAP"
        world.loop.step([world.call(wire.Nudge, message_type="json")])
    assert caplog.text.count("LOG_GAP") == 1


@pytest.mark.parametrize(("asked_ms", "waited_ms"), [(300, 300), (60_000, wire.LONG_POLL_LIMIT_MS)])
def test_a_long_poll_ends_with_its_wait_and_at_the_limit(world: World, asked_ms: int, waited_ms: int) -> None:
    poll = Planner(world).next_call(wait_ms=asked_ms)
    world.loop.step([poll])
    began_ms = world.clock.monotonic_ms()
    while not answered(poll):
        assert world.loop.wait_ms() > 0
        world.clock.advance(world.loop.wait_ms())
        world.loop.step([])
    assert world.clock.monotonic_ms() - began_ms == waited_ms
    assert isinstance(poll.reply, replies.Granted)
    assert (poll.reply.lease, poll.reply.messages) == (0, 0)


def test_waiting_polls_are_served_together(world: World) -> None:
    polls = [Planner(world, f"s{number}").next_call(limit=3, wait_ms=1_000) for number in range(4)]
    world.loop.step(polls)
    world.publish(12)
    before = len(world.storage.commits)
    world.loop.step([world.call(wire.Nudge, message_type="json")])
    assert [poll.reply.messages for poll in polls if isinstance(poll.reply, replies.Granted)] == [3, 3, 3, 3]
    assert len(world.storage.commits) == before + 1


def test_a_poll_whose_caller_hung_up_is_granted_nothing(world: World) -> None:
    poll = Planner(world).next_call(wait_ms=1_000, abandoned=True)
    world.loop.step([poll])
    world.publish(2)
    world.loop.step([world.call(wire.Nudge, message_type="json")])
    assert not answered(poll)
    assert Kind.GRANTED not in world.kinds()
    assert not poll._answered.locked(), "the thread that waits for it is let go"


def test_a_planner_that_leaves_is_granted_nothing_any_more(world: World) -> None:
    planner = Planner(world)
    poll = planner.next_call(wait_ms=1_000)
    world.loop.step([poll])
    world.publish(2)
    world.loop.step([planner.leave_call(), world.call(wire.Nudge, message_type="json")])
    assert isinstance(poll.reply, replies.Granted)
    assert poll.reply.messages == 0
    assert Kind.GRANTED not in world.kinds()


def test_a_poll_of_a_superseded_planner_is_told_so(world: World) -> None:
    poll = Planner(world).next_call(wait_ms=1_000)
    world.loop.step([poll])
    Planner(world)
    assert isinstance(poll.reply, wire.Failed)
    assert poll.reply.code == "SUBSCRIPTION_TAKEN"


def test_a_lease_ends_by_itself_and_goes_to_a_waiting_poll(world: World) -> None:
    world.publish(5)
    Planner(world, "first").next()
    world.clock.advance(PERIOD_MS - 500)
    poll = Planner(world, "second").next_call(wait_ms=1_000)
    world.loop.step([poll])
    while not answered(poll):
        world.clock.advance(world.loop.wait_ms())
        world.loop.step([])
    assert isinstance(poll.reply, replies.Granted)
    assert poll.reply.messages == 5
    returned = next(record for record in world.records() if record.kind == Kind.RETURNED)
    granted = world.records()[-1]
    assert (returned.reason, granted.kind, granted.at_ms) == ("lease_expired", Kind.GRANTED, returned.at_ms)


def test_a_delayed_message_wakes_a_waiting_poll_when_it_falls_due(world: World) -> None:
    world.publish(1)
    planner = Planner(world)
    planner.next()
    outcome = commands.OutcomeRows(outcome="cancel", ranges=((0, 1),), retry_after_ms=450)
    run = world.ask(commands.StartRun, **planner.common).run
    assert world.ask(commands.EndRun, run=run, outcomes=(outcome,), **planner.common) == replies.Done()
    poll = planner.next_call(wait_ms=1_000)
    world.loop.step([poll])
    began_ms = world.clock.monotonic_ms()
    while not answered(poll):
        world.clock.advance(world.loop.wait_ms())
        world.loop.step([])
    assert isinstance(poll.reply, replies.Granted)
    assert poll.reply.messages == 1
    assert world.clock.monotonic_ms() - began_ms <= 450 + POLLED_MS


def cancelled_for_10_ms(world: World) -> tuple[Planner, replies.Run]:
    """Give a planner and its run that said of its one message to come again soon; it is not proven yet."""
    world.publish(1)
    planner = Planner(world)
    planner.next()
    run = world.ask(commands.StartRun, **planner.common).run
    outcome = commands.OutcomeRows(outcome="cancel", ranges=((0, 1),), retry_after_ms=10)
    world.ask(commands.EndRun, run=run, outcomes=(outcome,), **planner.common)
    return planner, run


def test_what_fell_due_and_cannot_be_granted_does_not_keep_the_loop_spinning(world: World) -> None:
    planner, run = cancelled_for_10_ms(world)
    world.ask(commands.Prove, run=run, **planner.common)
    world.clock.advance(ROUND_MS)
    world.loop.step([])
    assert world.loop.wait_ms() > 0


def test_what_falls_due_while_a_group_is_committed_is_done_at_once(world: World) -> None:
    planner, run = cancelled_for_10_ms(world)
    world.storage.hook = lambda step, moment: world.clock.advance(10) if (step, moment) == ("control.append", "after") else None
    world.ask(commands.Prove, run=run, **planner.common)
    assert world.loop.wait_ms() == 0


def test_a_run_that_fixes_its_end_looks_for_gaps_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands behind one would be left out of it without a word."""
    planner, tails = Planner(world), [False]
    tail = MemoryMessageLog.tail

    def count(log: MemoryMessageLog, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        tails.append(finds_gaps)
        return tail(log, after_version)

    monkeypatch.setattr(MemoryMessageLog, "tail", count)
    world.ask(commands.Attach, ack_mode="auto", max_backlog=1, available_now=True, **planner.planner())
    assert any(tails)


def test_only_queues_of_its_message_type_look_at_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one's expressions name columns that its file does not have."""
    types = {"json": {"topics": ["ORDERS"]}, "note": {"columns": "text STRING", "topics": ["NOTES"]}}
    queues = {**DEFINITIONS["queues"], "NOTES_WORK": {"underlying_topic": "NOTES", "filter": "text IS NOT NULL"}}
    world = World({"message_types": types, "queues": queues})
    asked: list[str] = []
    traits = world.loop._entrance._traits
    prepare = traits.prepare

    def note(segments: Sequence[Segment], requests: Sequence[TraitRequest]) -> None:
        asked.extend(request.queue.name for request in requests)
        prepare(segments, requests)

    monkeypatch.setattr(traits, "prepare", note)
    world.publish(2)
    world.ask(wire.Nudge, message_type="json")
    assert asked == ["WORK"]


@pytest.mark.parametrize("messages", [1, 7])
def test_of_many_polls_that_wait_those_are_decided_about_that_get_something(
    world: World, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    """A decision reckons with every poll, so one for each of them would be a square of work."""
    polls = [Planner(world, f"s{number}").next_call(wait_ms=10_000, limit=1) for number in range(20)]
    # The turn of those that have waited longest comes last.
    for poll in reversed(polls):
        world.loop.step([poll])
    decided = counted(world, monkeypatch, commands.Next)
    world.publish(messages)
    world.nudge("json")
    assert [answered(each) for each in polls].count(True) == messages
    assert len(decided) <= messages + 1


def test_a_poll_is_looked_at_again_only_after_something_has_happened_to_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({**DEFINITIONS, "queues": dict.fromkeys(("WORK", "OTHER"), DEFINITIONS["queues"]["WORK"])})
    poll, other = Planner(world).next_call(wait_ms=10_000), Planner(world, queue="OTHER")
    world.loop.step([poll])
    looked, has_nothing_for = list[str](), world.loop.engine.has_nothing_for

    def note(asked: commands.Next, *about: Any, **more: Any) -> bool:
        looked.append(asked.queue)
        return has_nothing_for(asked, *about, **more)

    monkeypatch.setattr(world.loop.engine, "has_nothing_for", note)
    world.loop.step([])
    looked.clear()
    other.next()
    assert "WORK" not in looked
    world.publish(1)
    world.nudge("json")
    assert "WORK" in looked


def counted(world: World, monkeypatch: pytest.MonkeyPatch, kind: type[object]) -> list[object]:
    """Return the commands of a kind that the engine decides about from now on."""
    found, decide = list[object](), world.loop.engine.decide

    def note(command: commands.AnyCommand, **about: Any) -> Any:
        if isinstance(command, kind):
            found.append(command)
        return decide(command, **about)

    monkeypatch.setattr(world.loop.engine, "decide", note)
    return found
