"""The real coordinator loop over a table that people append to, compact, vacuum and drop, while everything misbehaves.

A failure names the world's seed; keep it in `KEPT_SEEDS`.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Kind, Removal, Retired
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import LeaseError
from spark_queue.journal.expressions import EXPRESSION_KEYS
from tests.second_model.problems import problems
from tests.simulation import promises
from tests.simulation.coordinator import QUEUE
from tests.simulation.followed_world import FollowedWorld, simulated_tables
from tests.simulation.key_promises import delivered_out_of_order
from tests.simulation.seeds import over_seeds
from tests.simulation.test_journal import QUEUES as OTHER_QUEUES
from tests.simulation.test_journal import folded
from tests.simulation.test_loop import acknowledged_by_nobody

#: How many keys the rows have where the queue orders by one.
KEYS = 3

#: One for each kind of queue, in turn: as many as leave no remainder in common with other turns. To order, each file must be read.
QUEUES: tuple[dict[str, Any], ...] = (
    *OTHER_QUEUES,
    {"order_key": f"n % {KEYS}", "max_deliveries": 3},
    {"order_key": f"n % {KEYS}", "order_key_run": 2, "max_backlog": 12},
    {"order_key": f"n % {KEYS}", "semantics": "at-most-once"},
    {"priority": "n"},
)

#: Seeds that once failed, and what was broken.
KEPT_SEEDS: dict[int, str] = {
    6374: "a queue that was given up files stayed out of the journal, since a snapshot without it was folded on",
    6389: "a copy was recorded before a version of a table made anew, and ended the reign",
}


def run(seed: int) -> FollowedWorld:
    """Run a world to its end and drain it."""
    settings = QUEUES[seed % len(QUEUES)]
    # Where a file has to be read before it enters, nothing behind it enters once it is gone, until somebody skips it (R148).
    careful = seed % 4 != 3 or bool(settings.keys() & EXPRESSION_KEYS)
    world = FollowedWorld(seed, careful=careful, drops=seed % 5 == 4, settings=settings)
    for _ in range(500 if seed % 10 == 0 else 150):
        world.step()
    world.drain(rounds=2_000)
    return world


def settled_untruly(world: FollowedWorld) -> list[int]:
    """Return the messages that a receiver heard to be acknowledged although the log does not say so (R132 to R134)."""
    ends = (Removal.ACKNOWLEDGED, Removal.DELIVERED)
    removed = (record for record in world.log if record.queue == QUEUE and record.reason in ends)
    acknowledged = BitMap64.union(BitMap64(), *(to_bitmap(record.ranges) for record in removed))
    wrong = []
    for row, settlement in world.settlements:
        # Where somebody else had it since, it is refused.
        with suppress(LeaseError):
            if settlement.is_done:
                settlement.result(0)
                wrong += [] if row in acknowledged else [row]
    return wrong


def given_up(world: FollowedWorld) -> BitMap64:
    """Return the messages of files that were given up: a queue that was set aside for them goes on without those (R155)."""
    given = (record for record in world.log if record.kind == Kind.RETIRED and record.body_as(Retired).request)
    return BitMap64.union(BitMap64(), *(to_bitmap(record.ranges) for record in given))


@over_seeds(every=25, kept=KEPT_SEEDS)
def test_rows_of_a_followed_table_keep_every_promise(seed: int) -> None:
    """R144, R147, R151 to R155: each row that was appended enters once and reaches an end, as it was; none is lost without need.

    Streams and a receiver share the queue, by order keys where it has some (R139).
    """
    with simulated_tables(random.Random(seed).getrandbits):
        world = run(seed)
        assert world.entered_wrongly() == []
        assert world.misread == []
        assert world.lost <= world.people.table.excused, "what is copied in time is not lost"
        assert world.is_empty(), "every message reaches an end"
        assert world.deposed_answers == []
        assert acknowledged_by_nobody(world) - BitMap64(world.finished) == BitMap64()
        assert settled_untruly(world) == []
        if "order_key" in world.settings:
            assert delivered_out_of_order(world.log, lambda row: world.order[row] % KEYS) == []
        assert promises.committed_after_disconnect(world) == []
        assert promises.removals_from_another_lease(world) == []
        state = folded(world)
        assert problems(state, world.log, {}) == []
        ledger = state.queues[QUEUE]
        ended = ledger.rows[State.REMOVED] | ledger.rows[State.DEAD] | ledger.retired | (given_up(world) - ledger.entered)
        assert ended == to_bitmap([(0, len(world.order))])
