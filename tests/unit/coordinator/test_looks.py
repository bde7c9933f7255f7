"""The looks of an idle coordinator at message logs, and who is told of what is published (DESIGN 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.journal.log_looks import BUSY_MS, SEARCHED_MS, SILENT_MS, UNAWAITED_MS
from spark_queue.ports import MessageLogEntry
from spark_queue.protocol import wire
from tests.memory_journal import MemoryMessageLog
from tests.unit.coordinator.loop_world import DEFINITIONS, Planner, World, answered


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, bool]]:
    """Count the looks from now on, by message type and by whether they search for gaps."""
    counted: Counter[tuple[str, bool]] = Counter()
    tail = MemoryMessageLog.tail

    def count(log: MemoryMessageLog, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        counted[log._message_type, finds_gaps] += 1
        return tail(log, after_version)

    monkeypatch.setattr(MemoryMessageLog, "tail", count)
    return counted


def idle(world: World, elapsed_ms: int, *, poll: Call | None = None) -> None:
    """Let the loop do what is due for a while, or until a poll is answered."""
    end_ms = world.clock.monotonic_ms() + elapsed_ms
    while world.clock.monotonic_ms() < end_ms and not (poll is not None and answered(poll)):
        world.clock.advance(max(1, min(world.loop.wait_ms(), end_ms - world.clock.monotonic_ms())))
        world.loop.step([])


def wait(world: World, elapsed_ms: int, planner: Planner) -> None:
    """Ask again and again for a while, as a stream does."""
    end_ms = world.clock.monotonic_ms() + elapsed_ms
    while world.clock.monotonic_ms() < end_ms:
        poll = planner.next_call(wait_ms=wire.LONG_POLL_LIMIT_MS)
        world.loop.step([poll])
        idle(world, elapsed_ms, poll=poll)


def test_a_log_that_nobody_waits_for_is_looked_at_seldom(world: World, looks: Counter[tuple[str, bool]]) -> None:
    world.loop._ends_idle = False
    idle(world, 2 * UNAWAITED_MS)
    assert looks == {("json", True): 2, ("binary", True): 2}


def test_one_look_is_for_all_who_wait_and_the_looks_become_fewer(world: World, looks: Counter[tuple[str, bool]]) -> None:
    planner = Planner(world)
    others = [Planner(world, f"s{number}").next_call(wait_ms=wire.LONG_POLL_LIMIT_MS) for number in range(4)]
    looks.clear()
    world.loop.step(others)
    wait(world, SEARCHED_MS + SILENT_MS, planner)
    assert looks["json", False] <= SEARCHED_MS // SILENT_MS + 6
    assert looks["json", True] == 1, "the listing of a minute"
    assert looks["binary", False] == 0


def test_a_log_of_which_looks_are_free_is_looked_at_as_often_as_it_says(
    looks: Counter[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryMessageLog, "silent_ms", 200)
    world = World()
    planner = Planner(world)
    looks.clear()
    wait(world, 4_000, planner)
    assert looks["json", False] + looks["json", True] >= 4_000 // 200 - 1


def test_the_first_message_after_a_silence_is_found_in_time_and_the_next_ones_sooner(world: World) -> None:
    planner = Planner(world)
    wait(world, SEARCHED_MS, planner)
    for within_ms in (SILENT_MS, BUSY_MS):
        world.publish(1)
        began_ms = world.clock.monotonic_ms()
        granted = 0
        while not granted:
            poll = planner.next_call(wait_ms=wire.LONG_POLL_LIMIT_MS)
            world.loop.step([poll])
            idle(world, wire.LONG_POLL_LIMIT_MS, poll=poll)
            assert isinstance(poll.reply, replies.Granted)
            planner.lease, granted = poll.reply.lease, poll.reply.messages
        assert world.clock.monotonic_ms() - began_ms <= within_ms


def test_a_nudge_after_a_silence_is_heard_at_once_and_makes_no_more_looks(world: World, looks: Counter[tuple[str, bool]]) -> None:
    planner = Planner(world)
    wait(world, SEARCHED_MS, planner)
    poll = planner.next_call(wait_ms=wire.LONG_POLL_LIMIT_MS)
    world.loop.step([poll])
    world.publish(1)
    world.loop.step([world.call(wire.Nudge, message_type="json")])
    assert isinstance(poll.reply, replies.Granted)
    assert poll.reply.messages == 1
    planner.lease = poll.reply.lease
    looks.clear()
    wait(world, 2 * SILENT_MS, planner)
    assert looks.total() <= 3, "who nudged will nudge again"


def test_a_nudge_that_tells_its_version_lets_nobody_look_behind_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is found by its own nudge, or by the next look that is due."""
    asked: list[int] = []
    tail = MemoryMessageLog.tail

    def watched(log: MemoryMessageLog, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        for version, entry in enumerate((*tail(log, after_version), None), start=after_version + 1):
            asked.append(version)
            if entry is None:
                return
            yield entry

    planner = Planner(world)
    monkeypatch.setattr(MemoryMessageLog, "tail", watched)
    for _ in range(3):
        world.publish(1)
    versions = [entry.version for entry in world.storage.entries["json"]][-3:]
    for version in (versions[1], versions[0], versions[2]):
        world.loop.step([world.call(wire.Nudge, message_type="json", log_version=version)])
    assert asked == versions
    assert planner.next().messages == 3


def test_polls_that_wait_for_long_end_together_after_one_look_at_the_control_log(world: World) -> None:
    planners = [Planner(world, f"s{number}") for number in range(5)]
    checks = [0]
    world.storage.hook = lambda step, moment: checks.append(1) if (step, moment) == ("control.check", "after") else None
    polls = []
    for planner in planners:
        polls.append(planner.next_call(wait_ms=wire.LONG_POLL_LIMIT_MS))
        world.loop.step(polls[-1:])
        world.clock.advance(70)
    idle(world, wire.LONG_POLL_LIMIT_MS)
    assert all(map(answered, polls))
    assert sum(checks) == 1


@pytest.mark.parametrize("passed_ms", [0, 1_000])
def test_what_people_ask_is_about_what_was_published_before(world: World, passed_ms: int) -> None:
    """Its publisher knows of a message that nobody has entered yet, and views show it, so it may be settled."""
    world.loop.step([])
    world.publish(3)
    world.clock.advance(passed_ms)
    outcome = commands.OutcomeRows(outcome="acknowledge", ranges=((1, 2),))
    settled = world.ask(commands.Settle, queue="WORK", outcomes=(outcome,))
    assert (settled.acknowledged, settled.skipped) == (1, 0)
    assert world.ask(commands.Purge, queue="WORK", where=None) == replies.Purged(purged=2, leased=0)


def await_call(world: World, version: int, *, wait_ms: int = wire.LONG_POLL_LIMIT_MS, **fields: Any) -> Call:
    return world.call(wire.AwaitPublish, **{"message_type": "json", "after_version": version, "wait_ms": wait_ms, **fields})


def test_who_waits_for_a_publish_is_told_of_it_at_once_or_by_a_look(world: World) -> None:
    version = world.loop._read_until("json")
    for told in (True, False):
        call = await_call(world, version)
        world.loop.step([call])
        assert not answered(call)
        world.publish(1)
        world.loop.step([world.call(wire.Nudge, message_type="json")] if told else [])
        idle(world, SILENT_MS, poll=call)
        version += 1
        assert call.reply == wire.LogHead(head=version)
    behind = await_call(world, version - 1)
    world.loop.step([behind])
    assert behind.reply == wire.LogHead(head=version)


def test_who_waited_for_a_publish_in_vain_hears_so_and_no_look_at_the_control_log_is_made_for_it(world: World) -> None:
    checks = [0]
    world.storage.hook = lambda step, moment: checks.append(1) if (step, moment) == ("control.check", "after") else None
    call = await_call(world, 7, wait_ms=300)
    world.loop.step([call])
    idle(world, 300)
    assert call.reply == wire.LogHead(head=7)
    assert sum(checks) == 0


def test_who_waits_for_a_publish_keeps_no_coordinator_alive(world: World) -> None:
    idle_ms = world.loop._engine.state.definitions.journal.coordinator_idle_ms
    call = await_call(world, 7)
    world.clock.advance(idle_ms)
    world.loop.step([call])
    assert not answered(call)
    assert world.loop.is_over()
    world.loop.run()
    assert (call.is_answered, call.reply) == (True, None), "it asks elsewhere"


def test_a_log_that_is_not_there_is_awaited_by_nobody(world: World) -> None:
    call = await_call(world, 0, message_type="jsn")
    world.loop.step([call])
    assert isinstance(call.reply, wire.Failed)
    assert call.reply.code == "UNKNOWN_MESSAGE_TYPE"


def test_the_logs_of_an_instance_are_looked_at_for_those_who_pull_from_it(looks: Counter[tuple[str, bool]]) -> None:
    world = World({**DEFINITIONS, "journal": {"instance": "A"}}, ends_idle=False)
    looks.clear()
    idle(world, SEARCHED_MS - SILENT_MS)
    assert looks["json", False] >= (SEARCHED_MS - SILENT_MS) // (SILENT_MS + 1_000)
