"""Dead letters in logs of before, which did not say of a letter's source that it was settled (DESIGN 15.11)."""

from __future__ import annotations

from dataclasses import replace

from spark_queue.core import folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.engine import Engine
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.letters import standing_letters
from spark_queue.core.state.lifecycle import State
from tests.deciding import claim
from tests.scenario import run_scenario
from tests.scenario.world import World

SETTLED = """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
  dead_letter_queue = "D"
  [queues.D]
  message_type = "json"
publish T 0..2
settle Q expire 0..1 -> expired 2
settle D acknowledge 0 -> acknowledged 1
"""


def as_before(world: World) -> list[Record]:
    """Return the records as older software made them."""
    told = [each for each in world.committed if (each.kind, each.queue, each.reason) != (Kind.REMOVED, "Q", "acknowledged")]
    assert len(told) == len(world.committed) - 1
    return [replace(record, record=number) for number, record in enumerate(told)]


def test_what_older_software_settled_is_no_dead_letter_and_ends_with_the_next_reign() -> None:
    world = run_scenario(SETTLED).world
    state = JournalState(world.traits)
    folds.fold_all(state, as_before(world))
    assert state.queues["Q"].rows[State.DEAD] == to_bitmap([(0, 2)])
    assert [letter.rows for letter in standing_letters(state, "Q")] == [to_bitmap([(1, 2)])]
    engine = Engine(state)
    claim(engine, epoch=state.epoch + 1, host="h", address="a", pid=1, now_ms=world.now_ms)
    engine.take_over(now_ms=world.now_ms)
    made = [(record.kind, record.queue, record.reason, tuple(record.ranges)) for record in engine.take()]
    assert made[1:] == [(Kind.REMOVED, "Q", "acknowledged", ((0, 1),))]
    assert state.queues["Q"].rows[State.DEAD] == to_bitmap([(1, 2)])
    # Once is enough.
    engine.take_over(now_ms=world.now_ms)
    assert engine.take() == []
