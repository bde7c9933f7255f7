"""Coordinators that go on after their reign: nothing of theirs lands or is answered (DESIGN 3.4, P7)."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_queue.coordinator.process import EXIT_DOUBT
from spark_queue.core import commands
from spark_queue.journal import control_checkpoint
from spark_queue.journal.reader import open_control
from spark_queue.protocol import wire
from spark_queue.protocol.connection import Connection, ConnectionLostError
from spark_queue.protocol.host import location_of
from tests.integration.coordinator_world import (
    DEADLINE_S,
    QUEUE,
    Planner,
    World,
    request_id,
    stopped,
    wait_until_stopped,
)
from tests.integration.faulty_coordinator import Faults
from tests.records import detail_of
from tests.waiting import wait_until

#: A starter that does not wait long for a silent predecessor.
HASTY = Faults(silence_s=0.5, watch_s=2.0, flush_ms=0)


def address_of(world: World) -> str:
    return str(detail_of(world.claims()[-1])["address"])


def start_call(pool: ThreadPoolExecutor, world: World, address: str, request: wire.AnyRequest) -> Future[wire.AnyReply]:
    """Send a request to one address only, and wait for its answer elsewhere."""
    sent = threading.Event()

    def send() -> wire.AnyReply:
        connection = Connection(address, world.journal_id, location_of(world.store))
        sent.set()
        return connection.call(request, timeout_s=DEADLINE_S)[0]

    future = pool.submit(send)
    assert sent.wait(DEADLINE_S)
    return future


def clean_control_log(world: World) -> None:
    """Checkpoint the control log after a flush and delete every older entry, as clean-up does in time (DESIGN 15.10)."""
    wait_until(lambda: not open_control(world.store).held)
    table = open_control(world.store)
    control_checkpoint.write(world.store, table.as_entry(), durable=False)
    for entry in sorted((Path(world.store.path) / "control" / "_delta_log").glob("*.json")):
        if int(entry.stem) < table.version:
            entry.unlink()


@pytest.mark.drawn(2)
@pytest.mark.parametrize("cleaned", [False, True], ids=["log kept", "log cleaned"])
@pytest.mark.parametrize("asked", ["a grant", "a proof", "rows", "a settlement"])
def test_a_coordinator_stopped_and_continued_after_its_reign_changes_and_answers_nothing(
    world: World, asked: str, cleaned: bool
) -> None:
    """A zombie is fenced at its next commit, also one that lands on a cleaned-up version (DESIGN 3.4), and at reads (P7)."""
    world.publish(40)
    # It does not look at the hint meanwhile: the log alone must stop it.
    old = world.started(Faults(renewal_s=3600.0))
    zombie_address = address_of(world)
    granted, idle = Planner(world, "granted"), Planner(world, "idle")
    granted.next(limit=5)
    outcome = commands.OutcomeRows(outcome="acknowledge", ranges=((0, 5),))
    requests: dict[str, wire.AnyRequest] = {
        "a grant": idle.next_request(limit=5),
        "a proof": granted.next_request(limit=5),
        "rows": granted.rows_request(),
        "a settlement": commands.Settle(journal=world.journal_id, request=request_id(), queue=QUEUE, outcomes=(outcome,)),
    }
    with ThreadPoolExecutor(1) as pool:
        with stopped(old.pid):
            answer = start_call(pool, world, zombie_address, requests[asked])
            world.started(HASTY)
            survivor = Planner(world, "survivor")
            survivor.next(limit=7)
            if cleaned:
                clean_control_log(world)
            before = world.records()
        # It goes on, finds the call waiting, and must not answer it.
        assert old.wait(DEADLINE_S) == EXIT_DOUBT
        assert isinstance(answer.exception(DEADLINE_S), ConnectionLostError), f"the zombie answered: {answer.result()}"
    assert world.records() == before
    assert sorted(survivor.bookmarks() + survivor.consume()) == list(range(5, 40))
    assert all(record.epoch == 2 for record in world.records()[len(before) :])


@pytest.mark.parametrize("cleaned", [False, True], ids=["log kept", "log cleaned"])
def test_a_commit_that_comes_late_lands_nowhere_or_unseen_and_is_not_answered(world: World, cleaned: bool) -> None:
    """Stopped between looking at the log and writing: on a cleaned-up version the write succeeds, and is lost (DESIGN 3.4)."""
    world.publish(20)
    old = world.started(Faults(stall=True, renewal_s=3600.0))
    zombie_address = address_of(world)
    planner = Planner(world)
    with ThreadPoolExecutor(1) as pool:
        answer = start_call(pool, world, zombie_address, planner.next_request(limit=5))
        wait_until_stopped(old.pid)
        world.started(HASTY)
        survivor = Planner(world, "survivor")
        survivor.next(limit=20)
        if cleaned:
            clean_control_log(world)
        before = world.records()
        os.kill(old.pid, signal.SIGCONT)
        assert old.wait(DEADLINE_S) == EXIT_DOUBT
        assert isinstance(answer.exception(DEADLINE_S), ConnectionLostError), f"the zombie answered: {answer.result()}"
    assert world.records() == before
    assert survivor.bookmarks() + survivor.consume() == list(range(20))


def test_callers_leave_a_stopped_coordinator_by_themselves(world: World) -> None:
    """With the real patience: a silent coordinator is succeeded after 10 s, within one call's time."""
    world.publish(5)
    planner = Planner(world)
    pid = int(detail_of(world.claims()[-1])["pid"])
    with stopped(pid):
        assert planner.next(limit=5).messages == 5
        assert [claim.epoch for claim in world.claims()] == [1, 2]


def test_a_deposed_coordinator_that_nobody_calls_ends_at_its_next_renewal(world: World) -> None:
    old = world.started(HASTY)
    with stopped(old.pid):
        world.started(HASTY)
    assert old.wait(DEADLINE_S) == EXIT_DOUBT
    assert world.ping().epoch == 2
