"""The real coordinator loop on the real journal, on a disk whose power fails (DESIGN 4, PROTOCOL 6).

A failure names the world's seed; keep it in `KEPT_SEEDS`.
"""

from __future__ import annotations

import random

from spark_queue.errors import JournalError
from spark_queue.journal.message_table import open_messages
from tests.simulation.disk_world import simulated_delta
from tests.simulation.loop_node import Node
from tests.simulation.loop_world import TYPE
from tests.simulation.power_world import PowerWorld
from tests.simulation.seeds import over_seeds
from tests.simulation.test_journal import QUEUES, check_journal

#: Seeds that once failed, and what was broken.
KEPT_SEEDS: dict[int, str] = {
    183: "whoever found a torn head that another repaired in that moment took it for damage",
}

#: Those of a disk that is not forced to hold anything.
KEPT_WITHOUT_FSYNC: dict[int, str] = {
    21_014_989: "two torn heads that Delta opens, each cut at the end of a line, ended in an error without a name",
}


def run(seed: int) -> PowerWorld:
    """Run a world to its end and drain it; a third of them begin without fsync, and with power that does not fail."""
    journal = ({"retention": "3s"} if seed % 2 else {}) | ({"durability": "fsync"} if seed % 3 else {})
    world = PowerWorld(seed, settings=QUEUES[seed // 3 % len(QUEUES)], journal=journal)
    steps = 500 if seed % 10 == 0 else 150
    if "durability" not in journal:
        for _ in range(steps // 3):
            world.step()
        world.apply_fsync()
    world.outages = 0.01
    for _ in range(steps):
        world.step()
    world.lose_power()
    world.drain()
    return world


@over_seeds(every=100, kept=KEPT_SEEDS)
def test_nothing_that_was_answered_is_lost_with_the_power(seed: int) -> None:
    """With durability fsync: what was answered, granted or confirmed is there again, and the journal opens."""
    with simulated_delta(random.Random(seed).getrandbits):
        world = run(seed)
        assert world.lost == []
        check_journal(world)


@over_seeds(every=100, kept=KEPT_WITHOUT_FSYNC)
def test_without_fsync_a_journal_opens_or_says_that_it_is_damaged(seed: int) -> None:
    """What was answered may be lost, and more than the head be torn; nothing else than a named error may come of it."""
    with simulated_delta(random.Random(seed).getrandbits):
        world = PowerWorld(seed, settings=QUEUES[seed % len(QUEUES)], journal={})
        for _ in range(100):
            world.step()
        world.lose_power()
        world.troubled = False
        try:
            # Recovery folds the log, and lets enter what was published.
            Node(world, len(world.answers))
            open_messages(world.way(None), world.journal_id, TYPE)
        except JournalError as damage:
            if damage.code not in ("JOURNAL_DAMAGED", "LOG_GAP"):
                raise
