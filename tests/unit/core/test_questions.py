"""Questions change nothing: who asks, and how often, is nobody else's business."""

from __future__ import annotations

import pytest

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.state.age import came_by, came_ms, first_aging_ms, oldest_ms
from spark_queue.core.state.letters import dead_letters, free_letters, standing_letters
from spark_queue.core.state.lifecycle import IN_QUEUE
from spark_queue.core.state.status import queue_status
from spark_queue.journal import state_codec
from spark_queue.metrics.figures import figures_of
from spark_queue.verification.state_digest import digest
from spark_queue.views.why_waiting import why_it_waits
from tests.scenario import Scenario

DEFINITIONS = """define
  [message_types.json]
  topics = ["A"]
  [queues.Q]
  underlying_topic = "A"
  expiration = "1h"
  priority = "price"
  {home}
  [queues.R]
  underlying_topic = "A"
  {other}
  [queues.D]
  message_type = "json"
  max_deliveries = 2
"""
OF_Q = DEFINITIONS.format(home='dead_letter_queue = "D"', other="")
OF_R = DEFINITIONS.format(home="", other='dead_letter_queue = "D"')


def ask(scenario: Scenario) -> None:
    """Ask everything that is asked of a state."""
    world = scenario.world
    state, now_ms = world.engine.state, world.now_ms
    figures_of(state, lambda queue: queue_status(state, queue, now_ms=now_ms), now_ms=now_ms)
    world.engine.next_due_ms()
    for name, ledger in state.queues.items():
        standing_letters(state, name)
        free_letters(state, name)
        if ledger.definition.underlying_topic is not None:
            dead_letters(state, name, None)
        parts = [ledger.rows[each] for each in IN_QUEUE]
        oldest_ms(state, ledger, parts)
        first_aging_ms(state, ledger, parts)
        came_by(state, ledger, ledger.entered, now_ms)
        ledger.selection.heads(ledger.entered)
        for row in ledger.entered:
            came_ms(state, ledger, row)
            why_it_waits(state, name, row, now_ms=now_ms, heard={})
        world.engine.decide(commands.FindDeadLetters(queue=name), now_ms=now_ms) if name != "D" else None


STORY = [
    "publish A 0..3 expires=10m, A 4..5",
    "settle Q expire 0..1",
    "wait 1s\nsettle Q expire 4..5",
    "planner p Q/s\nnext p limit=1",
    "wait 1s\nsettle D acknowledge 0",
    "planner q D/s\nnext q limit=1",
    "redrive Q 4",
    "settle Q acknowledge 4",
    "wait 1s\npurge D",
    "wait 10m\ntick 1s",
]


@pytest.mark.parametrize("steps", range(len(STORY) + 1))
def test_questions_leave_every_state_as_it_is(steps: int) -> None:
    scenario = Scenario()
    scenario.run("\n".join([OF_Q, *STORY[:steps]]))
    state = scenario.world.engine.state
    before, stored = digest(state), state_codec.encode(state)
    ask(scenario)
    assert digest(state) == before
    assert state_codec.encode(state) == stored


@pytest.mark.parametrize("asks", [False, True], ids=["nobody asks", "somebody asks"])
def test_letters_of_another_source_are_as_old_as_they_are_whoever_asked_before(*, asks: bool) -> None:
    """A letter of another source may have the bookmark of one that is over."""
    scenario = Scenario()
    scenario.run(OF_Q + "publish A 0..1\nsettle Q expire 0..1\npurge D\nwait 5s")
    if asks:
        ask(scenario)
    scenario.run(OF_R + "wait 1m\nsettle R expire 0..1\nwait 7s\nage D 7s")
    assert scenario.world.engine.state.ledger("D").depth == 2
    assert to_bitmap([(0, 2)]) == scenario.world.engine.state.ledger("D").begun.rows


def test_questions_forget_no_time_of_what_is_gone() -> None:
    """What is leased keeps its time, behind which that of what has left stays as well."""
    scenario = Scenario()
    scenario.run(OF_Q + "publish A 0 expires=30s, A 1 expires=40s, A 2 expires=50s\nplanner p Q/s\nnext p limit=1")
    scenario.run("settle Q acknowledge 1\ntick 35s")
    stored = state_codec.encode(scenario.world.engine.state)
    ask(scenario)
    assert state_codec.encode(scenario.world.engine.state) == stored


def test_letter_that_dies_again_has_the_age_of_its_last_death() -> None:
    """An older letter stands before it meanwhile."""
    scenario = Scenario()
    scenario.run(OF_Q + "publish A 0..1\nsettle Q expire 0\nwait 1s\nsettle Q expire 1\nwait 1s\nredrive Q 1\nwait 1s")
    scenario.run("settle Q expire 1\nwait 7s\nsettle D acknowledge 0\nage D 7s")
