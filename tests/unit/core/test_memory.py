"""What a queue knows of its messages takes memory by the stretch, not by the message."""

from __future__ import annotations

from spark_queue.core.state.lifecycle import State
from tests.simulation.coordinator import QUEUE
from tests.simulation.world import World

MESSAGES = 200_000


def test_messages_that_wait_take_little_memory_without_a_target_depth() -> None:
    """R11, R85: less than a bit for each, also with some of them leased and some gone."""
    world = World(1, settings={}, troubled=False, outspoken=False)
    world.publish(MESSAGES)
    for turn in range(200):
        world.drivers[turn % 2].step()
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert ledger.rows[State.REMOVED]
    assert len(ledger.entered) == MESSAGES
    bitmaps = (ledger.entered, *ledger.rows.values(), *(lease.rows for lease in ledger.leases.values()))
    assert sum(len(rows.serialize()) for rows in bitmaps) < MESSAGES / 8
