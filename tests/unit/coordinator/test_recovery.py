"""How a reign begins: what it folds, what it looks at before anything enters, and what it forgets afterwards (DESIGN 4, 6)."""

from __future__ import annotations

from dataclasses import replace

from spark_queue.core import commands, replies
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.protocol import wire
from tests.scenario.traits import MemoryTraits
from tests.unit.coordinator.loop_world import Planner, World


def nudge(world: World) -> None:
    assert world.ask(wire.Nudge, message_type="json") == replies.Done()


def test_what_entered_last_is_looked_at_once_before_anything_enters(world: World) -> None:
    world.publish(2)
    nudge(world)
    steps: list[str] = []
    world.storage.hook = lambda step, moment: steps.append(step) if moment == "after" else None
    world.loop, _ = world.reign()
    world.publish(1)
    for _ in range(2):
        nudge(world)
    looks = [step for step in steps if step in ("messages.recover", "messages.tail")]
    assert looks.count("messages.recover") == 2, "json and binary"
    assert looks[0] == "messages.recover"
    assert looks.index("messages.tail") < looks.index("messages.recover", 1), "each before its own"


def test_a_log_that_was_cut_lets_nothing_enter_and_says_so(world: World) -> None:
    world.publish(2)
    nudge(world)
    log = world.storage.entries["json"]
    log[1] = replace(log[1], token="another commit")
    world.loop, _ = world.reign()
    world.publish(1)
    before = world.kinds().count(Kind.ENTERED)
    planner = Planner(world)
    assert planner.next().messages == 2
    for _ in range(2):
        call = planner.next_call()
        world.loop.step([call])
        assert isinstance(call.reply, wire.Failed)
        assert call.reply.code == "JOURNAL_DAMAGED"
    assert world.kinds().count(Kind.ENTERED) == before


def test_files_are_read_where_they_stand_now_and_no_longer_where_they_stood_as_the_reign_began(world: World) -> None:
    def merge() -> None:
        world.storage.merge("json", world.loop._engine.state.message_types["json"].segments)
        nudge(world)

    for _ in range(2):
        world.publish(2)
        nudge(world)
    merge()
    world.loop, _ = world.reign()
    world.publish(2)
    nudge(world)
    merge()
    planner = Planner(world)
    attach = world.ask(commands.Attach, ack_mode="auto", max_backlog=100, filter="sequence > 3", **planner.planner())
    assert attach == replies.Done()


def test_a_state_that_a_snapshot_gave_asks_the_journal_for_facts(world: World) -> None:
    world.publish(2)
    nudge(world)
    state = JournalState(MemoryTraits())
    world.loop, _ = world.reign(state=state)
    assert world.loop._engine.state is state
    assert Planner(world).next().messages == 2
