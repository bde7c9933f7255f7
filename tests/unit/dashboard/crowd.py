"""A journal with more than a page can show: 500 queues, and ten thousand dead letters."""

from __future__ import annotations

from pathlib import Path

from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.records import Outcome
from tests.unit.dashboard.dashboard_world import DEFINITIONS, DashboardWorld

#: A name as long as names may be.
LONG = ("a_queue_of_a_long_name_" * 9)[:200]

QUEUES, LETTERS = 500, 10_000

#: Where the letters are.
FAILING = "PARCELS"


def crowded_world(place: Path) -> DashboardWorld:
    """Return a journal where most queues are well; the last ones have work, and one of them is paused."""
    world = DashboardWorld(place)
    names = [f"queue.{'eu' if number % 2 else 'us'}.{number:03}" for number in range(QUEUES - len(DEFINITIONS["queues"]) - 2)]
    many = {name: {"underlying_topic": "RETURNS"} for name in [LONG, *names]} | {FAILING: {"underlying_topic": "ORDERS"}}
    world.decide(commands.Apply(definitions={**DEFINITIONS, "queues": {**DEFINITIONS["queues"], **many}}), 1)
    for minute in range(120, 170, 7):
        world.publish(minute % 7 + 1, minute, topic="RETURNS")
    world.publish(LETTERS, 172)
    first = world.engine.state.message_types["order"].entered_until - LETTERS
    for start in range(0, LETTERS, 1_000):
        said = [
            commands.OutcomeRows(
                outcome=Outcome.EXPIRE, ranges=tuple(to_ranges(BitMap64([first + number]))), error=f"KeyError: order {7 * number}"
            )
            for number in range(start, start + 1_000)
        ]
        world.decide(commands.Settle(queue=FAILING, outcomes=tuple(said)), 173 + start / LETTERS)
    world.decide(commands.Pause(queue=names[-2]), 175)
    world.commit()
    return world
