"""A stream whose batch before is in doubt is told to ask again: one that ends where nothing is left would leave messages (R123)."""

from __future__ import annotations

import pytest

from spark_queue.core import commands
from tests.scenario import run_scenario

PREPARED = """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"

publish T 0..3
planner p1 Q/s backlog=2 available_now
next p1 limit=2 -> lease 1: 0..1
rows p1
start p1 sink
prepare p1 into=booked -> attempt 1
next p1 limit=2 -> nothing
"""


@pytest.mark.parametrize(("steps", "withheld"), [("", True), ("landed Q/s 1\nnext p1 limit=2\nnext p1 limit=2", False)])
def test_a_poll_that_finds_nothing_for_the_doubt_alone_is_to_ask_again(steps: str, *, withheld: bool) -> None:
    world = run_scenario(PREPARED + steps).world
    planner = world.planners["p1"]
    poll = commands.Next(
        queue="Q", subscription="s", incarnation=planner.incarnation, call=99, finished=world.checkpoints["Q", "s"], limit=2
    )
    assert world.engine.nothing_there(poll, now_ms=world.now_ms).withheld is withheld
