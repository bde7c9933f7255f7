"""What goes wrong inside a reign: commands that fail, logs that cannot be read (DESIGN 3.5, 4)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from spark_queue.coordinator.loop import ROUND_MS
from spark_queue.core import commands
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import JournalError
from spark_queue.journal import entering
from spark_queue.protocol import wire
from tests.unit.coordinator.loop_world import DEFINITIONS, Planner, World


def test_a_table_that_cannot_be_made_refuses_its_definitions(world: World) -> None:
    """They were folded already, so memory is ahead of a log that will never follow: it is dropped, and the reign goes on."""

    def fail(step: str, moment: str) -> None:
        if (step, moment) == ("messages.create", "before"):
            raise OSError("the disk is full")

    world.storage.hook = fail
    before = world.records()
    definitions = {
        **DEFINITIONS,
        "message_types": {**DEFINITIONS["message_types"], "line": {"columns": "id BIGINT", "topics": ["L"]}},
    }
    reply = world.ask(commands.Apply, definitions=definitions)
    assert isinstance(reply, wire.Failed)
    assert (reply.code, "the disk is full" in reply.facts["reason"]) == ("STORE_FAILED", True)
    assert world.records() == before
    assert world.loop.engine.state.definitions == parsing.parse(DEFINITIONS)
    Planner(world)


def test_a_refused_command_changes_nothing_and_the_reign_goes_on(world: World) -> None:
    before = world.records()
    reply = world.ask(commands.Apply, definitions={"queues": {"X": {"message_type": "json", "no_such_key": 1}}})
    assert isinstance(reply, wire.Failed)
    assert reply.code == "UNKNOWN_KEY"
    assert world.records() == before
    Planner(world)


def test_a_commit_enters_as_a_whole_or_not_at_all(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A message file that cannot be read: its commit waits, with a name, and enters when the file is back (DESIGN 10)."""
    world.publish(2)
    world.publish(3)
    entries = world.storage.entries["json"]
    both = entries.pop()
    first = entries.pop()
    world.storage.entries["json"].append(type(first)(version=first.version, token=first.token, added=(*first.added, *both.added)))
    planner = Planner(world)
    source = world.storage.traits
    real = source.traits

    def missing(segment: Segment, queues: Any) -> Any:
        if segment.path == both.added[0].path:
            raise JournalError("MESSAGE_FILE_MISSING", file=segment.path, path="memory", reason="it is gone.", next_step="")
        return real(segment, queues)

    monkeypatch.setattr(source, "traits", missing)
    call = planner.next_call()
    with caplog.at_level(logging.ERROR):
        world.loop.step([call])
        world.loop.step([world.call(wire.Nudge, message_type="json")])
    assert isinstance(call.reply, wire.Failed)
    assert call.reply.code == "MESSAGE_FILE_MISSING"
    assert Kind.ENTERED not in world.kinds()
    assert len([line for line in caplog.messages if "MESSAGE_FILE_MISSING" in line]) == 1
    monkeypatch.setattr(source, "traits", real)
    assert planner.next().messages == 5
    assert planner.next().messages == 0, "the trouble is over"


def test_trouble_in_a_log_is_told_only_when_nothing_else_is_there(world: World) -> None:
    world.publish(3)
    planner = Planner(world)
    planner.next(limit=1)

    def fail(step: str, _moment: str) -> None:
        if step.startswith("messages.tail"):
            raise OSError("the listing failed")

    world.storage.hook = fail
    assert planner.next(limit=2).messages == 2
    call = planner.next_call()
    world.loop.step([call])
    assert isinstance(call.reply, wire.Failed)
    assert call.reply.code == "STORE_FAILED"


def test_a_long_backlog_enters_in_portions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "GROUP_VERSIONS", 4)
    for _ in range(10):
        world.publish(1)
    planner = Planner(world)
    assert planner.next(limit=100).messages <= 4
    assert world.loop.wait_ms() == 0
    while world.loop.wait_ms() == 0:
        world.loop.step([])
    status = planner.next(limit=100).status
    assert status is not None
    assert status.queue_depth >= 6


def test_an_available_now_run_takes_in_what_was_published_before_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "GROUP_VERSIONS", 2)
    planner = Planner(world)
    for _ in range(7):
        world.publish(1)
    world.ask(commands.Attach, ack_mode="auto", max_backlog=100, available_now=True, **planner.planner())
    world.publish(1)
    assert planner.next(limit=100).messages == 7
    assert planner.next(limit=100).messages == 0


def test_logs_that_cannot_be_shortened_are_slow_and_not_wrong(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def fail(step: str, moment: str) -> None:
        if (step, moment) == ("upkeep", "before"):
            raise OSError("no space")

    world.storage.hook = fail
    with caplog.at_level(logging.WARNING):
        Planner(world)
    assert any("could not be shortened" in line for line in caplog.messages)


def test_a_retry_in_a_time_that_no_record_holds_is_refused_before_it_ends_the_reign(world: World) -> None:
    """The caller would ask again, and end the next reign with it."""
    world.publish(1)
    Planner(world).next()
    outcome = commands.OutcomeRows(outcome="cancel", ranges=((0, 1),), retry_after_ms=10**18)
    before = world.records()
    reply = world.ask(commands.Settle, queue="WORK", outcomes=(outcome,))
    assert isinstance(reply, wire.Failed)
    assert reply.code == "OUTCOME_INVALID"
    assert world.records() == before


def test_the_log_is_folded_again_when_a_message_file_is_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only folding the log anew takes back in the queue that was set aside for it."""
    world.clock.advance(ROUND_MS)
    world.loop.step([])
    before = world.loop._engine.state
    monkeypatch.setattr(JournalState, "is_file_back", lambda _: True)
    world.loop.step([])
    assert world.loop._engine.state is before, "it is looked for once in a round"
    world.clock.advance(ROUND_MS)
    world.loop.step([])
    assert world.loop._engine.state is not before
