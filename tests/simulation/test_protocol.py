"""The delivery protocol under random deaths, lost replies and late calls (P1 to P6, R15, R16, R19, R20).

A failure names the world's seed; keep it in `KEPT_SEEDS`.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Kind, Removal
from spark_queue.core.state.findings import alarms
from spark_queue.core.state.lifecycle import State
from tests.second_model.problems import problems
from tests.simulation.coordinator import QUEUE
from tests.simulation.key_promises import delivered_out_of_order
from tests.simulation.promises import (
    barriers_not_received_once,
    committed_after_disconnect,
    committed_rows,
    expired_by_an_older_run,
    granted_out_of_order,
    letters_not_ended_once,
    removals_by_a_lease_from_before_a_redrive,
    removals_from_another_lease,
)
from tests.simulation.seeds import over_seeds
from tests.simulation.traits import key_of
from tests.simulation.world import World

#: Seeds that once failed, and the rule that was broken.
KEPT_SEEDS: dict[int, str] = {}


def run(seed: int, *, steps: int = 400, **settings: object) -> World:
    """Run a troubled world to its end and drain it."""
    world = World(seed, settings=settings)
    world.publish(20)
    for _ in range(steps):
        world.step()
    world.drain()
    return world


def removed_rows(world: World, reason: Removal) -> BitMap64:
    """Return what the log says left the queue for a reason."""
    rows = BitMap64()
    for record in world.coordinator.log:
        if record.kind == Kind.REMOVED and record.queue == QUEUE and record.reason == reason:
            for first, until in record.ranges:
                rows.add_range(first, until)
    return rows


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_nothing_is_acknowledged_that_no_committed_batch_contained(seed: int) -> None:
    """R15, P2, P5: an acknowledged message stood in a committed batch; every message reaches an end."""
    world = run(seed, max_deliveries=0)
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert not removed_rows(world, Removal.ACKNOWLEDGED) - committed_rows(world)
    assert ledger.depth == 0
    assert len(ledger.rows[State.REMOVED]) + len(ledger.rows[State.DEAD]) == world.published
    assert removals_from_another_lease(world) == []
    assert committed_after_disconnect(world) == []
    assert expired_by_an_older_run(world) == []


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_each_message_has_one_final_outcome_with_limits_and_dead_letters(seed: int) -> None:
    """R52, R54, R55, P5: limits make dead letters; a letter that was taken back is not also dead."""
    world = run(seed, max_deliveries=3, max_cancels=1, dead_letter_queue="FAILED")
    state = world.coordinator.engine.state
    ledger, letters = state.queues[QUEUE], state.queues["FAILED"]
    assert ledger.depth == 0
    assert ledger.rows[State.DEAD] == letters.rows[State.AVAILABLE]
    assert ledger.rows[State.DEAD] | ledger.rows[State.REMOVED] == ledger.entered
    assert len(ledger.entered) == world.published


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_each_dead_letter_ends_once_whatever_is_redriven(seed: int) -> None:
    """DESIGN 15.11: redriven, settled in the dead-letter queue, taken back by a late proof, or over its retention."""
    settings = {"max_deliveries": 1, "dead_letter_queue": "FAILED", "dead_letter_retention": "2m"}
    world = World(seed, settings=settings, redrives=True)
    world.publish(20)
    for _ in range(400):
        world.step()
    world.drain()
    world.coordinator.now_ms += 120_000
    world.coordinator.call(lambda _engine: None)
    state, log = world.coordinator.engine.state, world.coordinator.log
    assert len(state.queues[QUEUE].rows[State.REMOVED]) == world.published
    assert state.queues["FAILED"].depth == 0
    assert letters_not_ended_once(world, "FAILED") == []
    assert removals_by_a_lease_from_before_a_redrive(world) == []
    assert problems(state, log, {}) == []
    # By chance nothing may be there to redrive; not in the first world.
    assert seed > 0 or any(record.kind == Kind.REDRIVEN for record in log)


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_an_at_most_once_message_is_never_read_by_two_planner_starts(seed: int) -> None:
    """R16: whatever dies, a message is in the rows of one planner start only."""
    world = run(seed, semantics="at-most-once", max_backlog=5)
    readers: dict[int, set[tuple[str, tuple[int, int]]]] = {}
    for subscription, _, incarnation, rows in world.reads:
        for row in rows:
            readers.setdefault(row, set()).add((subscription, incarnation))
    assert [row for row, by in readers.items() if len(by) > 1] == []
    assert world.coordinator.engine.state.queues[QUEUE].depth == 0


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_each_subscription_receives_each_barrier_in_one_committed_batch(seed: int) -> None:
    """R68 to R73: whatever dies, a barrier stands between what was before it and what is behind it, once for each."""
    world = run(seed, semantics=("at-least-once", "at-most-once")[seed % 2], barrier="by bookmark")
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert ledger.depth == 0
    assert len(ledger.barriers) > 2
    assert [name for name, each in ledger.subscriptions.items() if each.barriers] == []
    assert barriers_not_received_once(world) == []
    assert granted_out_of_order(world) == []
    assert problems(world.coordinator.engine.state, world.coordinator.log, {}) == []


@over_seeds(every=50, kept=KEPT_SEEDS)
def test_barriers_wait_for_dead_letters_and_returned_messages_of_a_failing_batch(seed: int) -> None:
    """R78, DESIGN 8: a poison message delays the barrier behind it until it is a dead letter; a poison barrier is given up."""
    settings = {"max_deliveries": 3, "dead_letter_queue": "FAILED", "barrier": "by bookmark"}
    world = World(seed, settings=settings, poison=(2, 5)[seed % 2], troubled=False, outspoken=False)
    world.publish(20)
    world.drain(rounds=6_000)
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert (list(ledger.rows[State.DEAD]), ledger.barriers_given_up) == (([2], 0), ([], 2))[seed % 2]
    assert ledger.depth == 0
    assert granted_out_of_order(world) == []
    assert problems(world.coordinator.engine.state, world.coordinator.log, {}) == []


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_the_messages_of_a_key_are_delivered_in_order(seed: int) -> None:
    """DESIGN 8: whatever dies, is cancelled or redriven, no message of a key overtakes an older one, but in one lease after it."""
    settings: dict[str, object] = {"order_key": "by bookmark", "order_key_run": (0, 2, 0)[seed % 3]}
    if seed % 4 == 0:
        settings |= {"semantics": "at-most-once"}
    else:
        settings |= {"max_deliveries": 2, "max_cancels": 1, "dead_letter_queue": "FAILED"}
    world = World(seed, settings=settings, redrives=seed % 4 == 1)
    world.publish(20)
    for _ in range(400):
        world.step()
    world.drain()
    assert delivered_out_of_order(world.log, key_of) == []
    assert problems(world.coordinator.engine.state, world.coordinator.log, {}) == []
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert ledger.depth == 0
    # By chance no lease may hold two messages of a key; not in the first worlds.
    sizes = [to_bitmap(record.ranges) for record in world.log if record.kind == Kind.GRANTED and record.queue == QUEUE]
    assert seed > 1 or any(len(rows) > len({key_of(row) for row in rows}) for rows in sizes)


@pytest.mark.parametrize("cancels", [False, True], ids=["fail", "cancel"])
@over_seeds(every=50, kept=KEPT_SEEDS)
def test_one_poison_message_makes_one_dead_letter(seed: int, *, cancels: bool) -> None:
    """DESIGN 8, isolation: the batch halves until the poison message is alone, and only it uses up its deliveries."""
    settings = {"max_deliveries": 3, "dead_letter_queue": "FAILED"}
    world = World(seed, settings=settings, poison=7, troubled=False, outspoken=False, cancels=cancels)
    world.publish(40)
    world.drain(rounds=6_000)
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert list(ledger.rows[State.DEAD]) == [7]
    assert len(ledger.rows[State.REMOVED]) == 39


@pytest.mark.parametrize("cancels", [False, True], ids=["fail", "cancel"])
@over_seeds(every=400, kept=KEPT_SEEDS)
def test_a_sink_that_is_down_makes_no_dead_letter_whatever_becomes_of_the_coordinator(seed: int, *, cancels: bool) -> None:
    """DESIGN 15.12: an alarm instead; once the sink is back, everything is acknowledged and the alarm is over."""
    settings = {"max_deliveries": 2, "max_cancels": 1, "dead_letter_queue": "FAILED"}
    world = World(seed, settings=settings, outspoken=False, cancels=cancels, down_until_ms=600_000)
    world.publish(40)
    for turn in range(3_000):
        world.drivers[turn % 2].step()
        if turn % 20 == 0:
            world.coordinator.now_ms += 6_000
    world.drain()
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert not ledger.rows[State.DEAD]
    assert len(ledger.rows[State.REMOVED]) == 40
    assert alarms(world.coordinator.engine.state, ledger) == {}
    told = Counter((each.subscription, each.reason) for each in world.coordinator.log if each.kind in (Kind.PAUSED, Kind.UNPAUSED))
    # Once for each subscription that came to it, and one did.
    assert told
    assert told == {(name, reason): 1 for name, _ in told for reason in ("alarm", "probe")}


def test_a_calm_world_delivers_each_message_once() -> None:
    """R14: without trouble there is no redelivery at all."""
    world = World(1, settings={}, troubled=False, outspoken=False)
    world.publish(200)
    for turn in range(2_000):
        world.drivers[turn % 2].step()
    deliveries = Counter(row for _, _, _, rows in world.reads for row in rows)
    assert set(deliveries.values()) == {1}
    assert len(deliveries) == 200
