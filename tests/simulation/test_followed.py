"""The real coordinator loop over a table that people append to, compact, vacuum and drop, while everything misbehaves.

A failure names the world's seed; keep it in `KEPT_SEEDS`.
"""

from __future__ import annotations

import random

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.state.lifecycle import State
from tests.second_model.problems import problems
from tests.simulation import promises
from tests.simulation.coordinator import QUEUE
from tests.simulation.followed_world import FollowedWorld, simulated_tables
from tests.simulation.seeds import over_seeds
from tests.simulation.test_journal import QUEUES, folded
from tests.simulation.test_loop import acknowledged_by_nobody

#: Seeds that once failed, and what was broken.
KEPT_SEEDS: dict[int, str] = {}


def run(seed: int) -> FollowedWorld:
    """Run a world to its end and drain it."""
    world = FollowedWorld(seed, careful=seed % 4 != 3, drops=seed % 5 == 4, settings=QUEUES[seed % len(QUEUES)])
    for _ in range(500 if seed % 10 == 0 else 150):
        world.step()
    world.drain(rounds=1_000)
    return world


@over_seeds(every=25, kept=KEPT_SEEDS)
def test_rows_of_a_followed_table_keep_every_promise(seed: int) -> None:
    """R144, R147, R151 to R155: each row that was appended enters once and reaches an end, as it was; none is lost without need."""
    with simulated_tables(random.Random(seed).getrandbits):
        world = run(seed)
        assert world.entered_wrongly() == []
        assert world.misread == []
        assert world.lost <= world.people.table.excused, "what is copied in time is not lost"
        assert world.is_empty(), "every message reaches an end"
        assert world.deposed_answers == []
        assert acknowledged_by_nobody(world) == BitMap64()
        assert promises.committed_after_disconnect(world) == []
        assert promises.removals_from_another_lease(world) == []
        state = folded(world)
        assert problems(state, world.log, {}) == []
        ledger = state.queues[QUEUE]
        ended = ledger.rows[State.REMOVED] | ledger.rows[State.DEAD] | ledger.retired
        assert ended == to_bitmap([(0, len(world.order))])
