"""Receivers beside streams under random deaths, lost replies and late calls (R131 to R140).

A failure names the world's seed; keep it in `KEPT_SEEDS`.
"""

from __future__ import annotations

from typing import Any

from pyroaring import BitMap64

from spark_queue.core.records import Kind, Removal
from spark_queue.core.state.findings import alarms
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import LeaseError
from tests.second_model.problems import problems
from tests.simulation.coordinator import QUEUE
from tests.simulation.key_promises import delivered_out_of_order
from tests.simulation.promises import (
    committed_rows,
    granted_out_of_order,
    removals_from_another_lease,
    rows_of,
)
from tests.simulation.receivers import ReceiversWorld
from tests.simulation.seeds import over_seeds

#: Seeds that once failed, and the rule that was broken.
KEPT_SEEDS: dict[int, str] = {}


def run(seed: int, *, steps: int = 500, settings: dict[str, Any] | None = None, **about: Any) -> ReceiversWorld:
    """Run a troubled world to its end and drain it."""
    world = ReceiversWorld(seed, settings=settings or {}, **about)
    world.publish(20)
    for _ in range(steps):
        world.step()
    world.drain(rounds=8_000)
    return world


def acknowledged_by(world: ReceiversWorld) -> dict[int, tuple[str, int]]:
    """Return under which subscription and lease each message was acknowledged, by the log."""
    return {
        row: (str(record.subscription), int(record.lease or 0))
        for record in world.log
        if record.kind == Kind.REMOVED and record.queue == QUEUE and record.reason == Removal.ACKNOWLEDGED
        for row in rows_of(record)
    }


def untrue_answers(world: ReceiversWorld) -> list[tuple[int, str]]:
    """Return acknowledgements that were answered with success, or as lost, and the log says otherwise (R132 to R134)."""
    acknowledged, wrong = acknowledged_by(world), []
    dead = world.coordinator.engine.state.queues[QUEUE].rows[State.DEAD]
    for row, settlement in world.settlements:
        if not settlement.is_done:
            wrong.append((row, "was not answered"))
            continue
        try:
            settlement.result(0)
        except LeaseError as lost:
            # Somebody else had it since, and so it has another end.
            if "left the queue" in str(lost) and row not in acknowledged and row not in dead:
                wrong.append((row, str(lost)))
        else:
            if row not in acknowledged:
                wrong.append((row, "was answered, and is not acknowledged"))
    return wrong


def doubles_without_a_return(world: ReceiversWorld) -> list[int]:
    """Return messages that were begun twice with nothing between that gave them back."""
    wrong, begun = [], dict[int, int]()
    for each in world.begun:
        before = begun.get(each.bookmark)
        if before is not None:
            between = world.log[before : each.record]
            gave_back = (Kind.RETURNED, Kind.REDRIVEN, Kind.UNSUBSCRIBED, Kind.OUTCOMES, Kind.GRANTED)
            if not any(record.kind in gave_back and (each.bookmark in rows_of(record) or not record.ranges) for record in between):
                wrong.append(each.bookmark)
        begun[each.bookmark] = each.record
    return wrong


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_nothing_is_acknowledged_that_no_consumer_finished_and_nothing_is_lost(seed: int) -> None:
    """R131 to R137: what is acknowledged was finished, every message reaches an end, and every answer is true."""
    world = run(seed)
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert ledger.depth == 0
    assert len(ledger.rows[State.REMOVED]) + len(ledger.rows[State.DEAD]) == world.published
    finished = committed_rows(world) | BitMap64(world.done)
    assert not BitMap64(acknowledged_by(world)) - finished
    assert removals_from_another_lease(world) == []
    assert untrue_answers(world) == []
    assert doubles_without_a_return(world) == []
    assert problems(world.coordinator.engine.state, world.log, {}) == []


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_a_message_of_a_key_begins_only_when_no_older_one_is_left(seed: int) -> None:
    """R139: whatever dies or is cancelled, one message of a key at a time, in order."""
    world = run(seed, settings={"order_key": "by bookmark", "order_key_run": (0, 2)[seed % 2], "max_cancels": 2})
    assert [(each.bookmark, each.older) for each in world.begun if each.older] == []
    assert delivered_out_of_order(world.log, lambda row: row % 3) == []
    assert world.coordinator.engine.state.queues[QUEUE].depth == 0
    assert untrue_answers(world) == []
    assert problems(world.coordinator.engine.state, world.log, {}) == []


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_a_message_that_kills_its_receiver_takes_no_other_with_it(seed: int) -> None:
    """R138: it alone becomes a dead letter, whatever else was in hand when it killed."""
    settings = {"max_deliveries": 3, "dead_letter_queue": "FAILED"}
    # Nothing else kills here: of a process that ends by chance nobody knows on which message.
    world = ReceiversWorld(seed, settings=settings, streams=0, kills=7, troubled=False, outspoken=False)
    world.publish(20)
    world.drain(rounds=20_000)
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert list(ledger.rows[State.DEAD]) == [7]
    assert len(ledger.rows[State.REMOVED]) == world.published - 1
    deaths = sum(each.bookmark == 7 for each in world.begun)
    # Twice among others, and then alone as often as it may be delivered, and where nobody heard the renewal once more.
    assert deaths >= 3


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_an_at_most_once_message_is_begun_once(seed: int) -> None:
    """R140, R16: whatever dies, a message is begun by one process at most."""
    world = run(seed, settings={"semantics": "at-most-once", "max_backlog": 6}, streams=0)
    rows = [each.bookmark for each in world.begun]
    assert len(rows) == len(set(rows))
    assert world.coordinator.engine.state.queues[QUEUE].depth == 0
    assert problems(world.coordinator.engine.state, world.log, {}) == []


@over_seeds(every=20, kept=KEPT_SEEDS)
def test_each_subscription_that_lasts_receives_each_barrier(seed: int) -> None:
    """R140, R68 to R73: a barrier stands between what was before it and what is behind it."""
    world = run(seed, settings={"barrier": "by bookmark"})
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert ledger.depth == 0
    assert [name for name, each in ledger.subscriptions.items() if each.barriers] == []
    assert granted_out_of_order(world) == []
    assert problems(world.coordinator.engine.state, world.log, {}) == []


@over_seeds(every=100, kept=KEPT_SEEDS)
def test_a_function_that_fails_on_everything_makes_no_dead_letter(seed: int) -> None:
    """15.12: an alarm instead; once it works again, everything is acknowledged, and the alarm is over."""
    settings = {"max_deliveries": 2, "max_cancels": 1, "dead_letter_queue": "FAILED"}
    world = ReceiversWorld(seed, settings=settings, streams=0, receivers=1, troubled=False, outspoken=False, fails_until_ms=600_000)
    world.publish(40)
    world.drain(rounds=20_000)
    ledger = world.coordinator.engine.state.queues[QUEUE]
    assert not ledger.rows[State.DEAD]
    assert len(ledger.rows[State.REMOVED]) == 40
    assert alarms(world.coordinator.engine.state, ledger) == {}
    assert any(record.kind == Kind.PAUSED for record in world.log)


def test_a_calm_world_hands_each_message_out_once() -> None:
    """R14: without trouble there is no redelivery at all."""
    world = ReceiversWorld(1, settings={}, troubled=False, outspoken=False, streams=0)
    world.publish(200)
    for turn in range(6_000):
        world.receivers[turn % 2].step()
    rows = [each.bookmark for each in world.begun]
    assert len(rows) == len(set(rows)) == 200
