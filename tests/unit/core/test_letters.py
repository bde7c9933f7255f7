"""Dead letters that their dead-letter queue is done with while their source is set aside (R122, DESIGN 15.11)."""

from __future__ import annotations

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Kind
from spark_queue.core.state.letters import standing_letters
from spark_queue.core.state.lifecycle import State
from tests.records import detail_of
from tests.scenario import run_scenario

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
set_aside Q
settle D acknowledge 0 -> acknowledged 1
"""


def test_what_was_settled_while_its_source_was_set_aside_is_no_dead_letter_once_that_is_back() -> None:
    scenario = run_scenario(SETTLED)
    before = len(scenario.world.committed)
    scenario.run("revive Q\n")
    state = scenario.world.state
    ended = [
        (each.queue, each.reason, each.ranges, detail_of(each))
        for each in scenario.world.committed[before:]
        if each.kind == Kind.REMOVED
    ]
    assert ended == [("Q", "acknowledged", ((0, 1),), {"settled_in": "D"})]
    assert state.queues["Q"].rows[State.DEAD] == to_bitmap([(1, 2)])
    assert [letter.rows for letter in standing_letters(state, "Q")] == [to_bitmap([(1, 2)])]
    # Once is enough.
    scenario.world.engine.take_over(now_ms=scenario.world.now_ms)
    assert scenario.world.engine.drain_records() == []


def test_looking_at_a_source_that_is_back_shows_none_of_them_before_a_reign_says_so() -> None:
    scenario = run_scenario(SETTLED)
    revived = len(scenario.world.committed)
    scenario.run("revive Q\n")
    world = scenario.world
    (number,) = [index for index, each in enumerate(world.committed) if index >= revived and each.kind == Kind.REVIVED]
    world.committed[number + 1 :] = []
    state = world.folded()
    assert state.queues["Q"].rows[State.DEAD] == to_bitmap([(0, 2)])
    assert [letter.rows for letter in standing_letters(state, "Q")] == [to_bitmap([(1, 2)])]
