"""Batches that are appended to a sink, under deaths, sleep, late puts and restored journals (R123 to R127, DESIGN 19).

A failure names the world's seed; keep it in `KEPT_SEEDS`.
"""

from __future__ import annotations

from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Kind, Removal
from spark_queue.core.state.in_doubt import in_doubt
from tests.second_model.problems import problems
from tests.simulation import promises
from tests.simulation.coordinator import QUEUE
from tests.simulation.seeds import over_seeds
from tests.simulation.sinks_loop_world import SinkLoopWorld
from tests.simulation.sinks_world import SinkWorld
from tests.simulation.test_loop import QUEUES as LOOP_QUEUES
from tests.simulation.test_loop import keeps_every_promise as loop_keeps_every_promise
from tests.simulation.test_loop import run as run_loop

#: Seeds that once failed, and the rule that was broken.
KEPT_SEEDS = {8122985480: "R124: what a run had read was gone before it prepared, since its reader's call came twice"}

#: One for each kind of queue, in turn.
QUEUES: tuple[dict[str, Any], ...] = (
    {},
    {"max_deliveries": 3, "max_cancels": 1, "dead_letter_queue": "FAILED"},
    {"order_key": "by bookmark", "leasing": "strict"},
    {"barrier": "by bookmark", "expiration": "1m"},
)


def run(seed: int, *, restores: bool = False) -> SinkWorld:
    """Run a troubled world to its end and drain it."""
    world = SinkWorld(seed, settings=QUEUES[seed % len(QUEUES)], restores=restores)
    world.publish(20)
    for _ in range(500):
        world.step()
    world.drain()
    return world


def acknowledged(world: promises.World) -> BitMap64:
    """Return what batches acknowledged."""
    rows = BitMap64()
    for record in world.log:
        is_end = record.kind == Kind.REMOVED and record.queue == QUEUE and record.reason == Removal.ACKNOWLEDGED
        if is_end and not promises.is_by_hand(world, record):
            rows |= to_bitmap(record.ranges)
    return rows


def keeps_every_promise(world: SinkWorld) -> None:
    """Judge a world from its log and its sink; what may not be at any moment `SinkWorld.check` has looked for."""
    state = world.coordinator.engine.state
    ledger, there = state.queues[QUEUE], BitMap64(world.sink.standing) - world.lost
    assert ledger.depth == 0, "every message reaches an end"
    assert list(in_doubt(ledger)) == []
    assert acknowledged(world) - world.sink.settled() == BitMap64(), "nothing is acknowledged that stands nowhere"
    assert there - acknowledged(world) == BitMap64(), "what stands there is done with, and nothing else"
    assert problems(state, world.log, {}) == []


@over_seeds(every=4, kept=KEPT_SEEDS)
def test_each_message_stands_in_the_sink_once_or_was_left_out(seed: int) -> None:
    """R123 to R127: whatever dies, sleeps, lands late or is settled by hand."""
    world = run(seed)
    keeps_every_promise(world)
    if not world.unsubscribes:
        # A stateful query has counted what was acknowledged, also where its lease had ended before Spark committed the batch.
        assert acknowledged(world) - promises.committed_rows(world) == BitMap64()


@over_seeds(every=10, kept=KEPT_SEEDS)
def test_a_journal_that_is_put_back_uses_no_number_twice_and_doubles_only_what_it_cannot_know(seed: int) -> None:
    """R124: what landed after the backup comes again, as all that was acknowledged since."""
    keeps_every_promise(run(seed, restores=True))


@over_seeds(every=8, kept=KEPT_SEEDS)
def test_a_troubled_loop_keeps_every_promise_of_a_sink(seed: int) -> None:
    """R123 to R127, P1 to P7: with stores, networks and clocks that misbehave, elections, and people who settle by hand."""
    # At-most-once queues have no sinks; they are the last.
    seed = seed // len(LOOP_QUEUES[:-1]) * len(LOOP_QUEUES) + seed % len(LOOP_QUEUES[:-1])
    world = run_loop(seed, SinkLoopWorld)
    assert isinstance(world, SinkLoopWorld)
    loop_keeps_every_promise(world)
    there = BitMap64(world.sink.standing)
    assert acknowledged(world) - world.sink.settled() == BitMap64(), "nothing is acknowledged that stands nowhere"
    assert there - acknowledged(world) == BitMap64(), "what stands there is done with, and nothing else"
