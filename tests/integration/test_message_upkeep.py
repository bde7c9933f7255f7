"""Merging and retiring message files under load, with kills between the commits: every bookmark keeps its body (DESIGN 4)."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_queue.coordinator.process import EXIT_DOUBT
from spark_queue.core.records import Kind
from spark_queue.errors import JournalError
from spark_queue.journal.open import open_journal
from spark_queue.protocol import wire
from spark_queue.source.topic_log import TopicLog
from spark_queue.verification.of_log import of_message_log
from spark_queue.verification.of_state import of_state
from spark_queue.views.journal_view import state_at
from tests.integration.coordinator_world import DEADLINE_S, TOPIC, MakeWorld, Planner, World, request_id, wait_until_stopped
from tests.integration.faulty_coordinator import Faults
from tests.second_model.problems import of_records

MERGING = Faults(merge_files=4)
HASTY = Faults(merge_files=4, silence_s=0.5, watch_s=2.0)


def numbers(world: World, pieces: list[dict[str, Any]]) -> dict[int, int]:
    """Read what stands in pieces of message files, by bookmark."""
    found: dict[int, int] = {}
    for piece in pieces:
        file = Path(world.store.messages_uri("json")) / piece["path"]
        values = pq.read_table(file, columns=["value"]).column("value").slice(piece["first_row"], piece["rows"]).to_pylist()
        assert len(values) == piece["rows"]
        found |= {piece["bookmark"] + row: json.loads(str(value))["n"] for row, value in enumerate(values)}
    return found


@contextmanager
def publishing(world: World) -> Iterator[list[int]]:
    """Publish small commits until the end; returns the number of messages published."""
    over, count = threading.Event(), [0]

    def publish() -> None:
        while not over.is_set():
            world.publish(2)
            count[0] += 2

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


def consume(planner: Planner, world: World, received: dict[int, int], *, until: Callable[[], bool]) -> None:
    """Take leases and read their bodies until something has happened."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not until():
        assert time.monotonic() < deadline_s, "it does not happen"
        if planner.next(limit=7, wait_ms=200).messages:
            rows = numbers(world, planner.rows().pieces.to_pylist())
            assert not rows.keys() & received.keys(), "nothing is delivered twice while nobody fails"
            received |= rows


def kinds(world: World) -> set[str]:
    return {record.kind for record in world.records()}


def check(world: World, count: int) -> None:
    """Check that every bookmark has its body, for every kind of reader, and that the logs agree."""
    log = TopicLog(world.store, world.journal_id, "json", TOPIC)
    assert numbers(world, log.pieces(0, log.until).to_pylist()) == {number: number for number in range(count)}
    stored: list[Any] = DeltaTable(world.store.messages_uri("json")).to_pyarrow_table().column("value").to_pylist()
    assert sorted(json.loads(value)["n"] for value in stored) == list(range(count))
    journal = open_journal(world.store)
    moment = state_at(journal)
    assert of_state(moment.state) == []
    records = journal.records()
    assert of_records(records) == []
    assert of_message_log(records, "json", list(journal.messages("json").tail(-1))) == []


def test_files_are_merged_under_load_and_every_reader_goes_on(world: World) -> None:
    world.started(MERGING)
    received: dict[int, int] = {}
    planner = Planner(world)
    with publishing(world) as count:
        consume(planner, world, received, until=lambda: sum(record.kind == Kind.MOVED for record in world.records()) >= 2)
    consume(planner, world, received, until=lambda: len(received) == count[0])
    assert received == {number: number for number in range(count[0])}
    assert len(DeltaTable(world.store.messages_uri("json")).file_uris()) < count[0] // 2
    check(world, count[0])


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("faults", "recorded_by"),
    [
        (Faults(merge_files=4, die_working="written"), {2}),
        (Faults(merge_files=4, die_working="swapped"), {2}),
        (Faults(merge_files=4, die="committed", at_kind=Kind.MOVED), {1}),
    ],
    ids=["written", "swapped", "recorded"],
)
def test_a_kill_around_the_two_commits_of_a_merge_moves_no_body(world: World, faults: Faults, recorded_by: set[int]) -> None:
    victim = world.started(faults)
    received: dict[int, int] = {}
    planner = Planner(world)
    with publishing(world) as count:
        consume(planner, world, received, until=lambda: victim.poll() is not None)
        assert victim.returncode == -signal.SIGKILL
        consume(planner, world, received, until=lambda: Kind.MOVED in kinds(world))
    consume(planner, world, received, until=lambda: len(received) == count[0])
    assert received == {number: number for number in range(count[0])}
    assert {record.epoch for record in world.records() if record.kind == Kind.MOVED} & {1} == recorded_by & {1}
    check(world, count[0])


@pytest.mark.parametrize("point", ["planned", "swap"])
def test_a_zombies_merge_is_refused(world: World, point: str) -> None:
    """Stopped before it reads the head, or between that and its commit; the next reign has merged the same files meanwhile."""
    old = world.started(Faults(merge_files=4, stall_working=point, renewal_s=3600.0))
    for _ in range(6):
        world.publish(2)
    Planner(world).next(limit=1)
    wait_until_stopped(old.pid)
    assert len(DeltaTable(world.store.messages_uri("json")).file_uris()) == 6, "it is stopped before its own merge stands"
    world.started(HASTY)
    received: dict[int, int] = {}
    planner = Planner(world, "survivor")
    consume(planner, world, received, until=lambda: Kind.MOVED in kinds(world))
    before = int(DeltaTable(world.store.messages_uri("json")).version())
    os.kill(old.pid, signal.SIGCONT)
    assert old.wait(DEADLINE_S) == EXIT_DOUBT
    assert int(DeltaTable(world.store.messages_uri("json")).version()) == before
    assert {record.epoch for record in world.records() if record.kind == Kind.MOVED} == {2}
    check(world, 12)


@pytest.mark.parametrize("killed", [False, True], ids=["alive", "killed between the commits"])
def test_retention_takes_what_was_consumed_and_nothing_else(make_world: MakeWorld, killed: bool) -> None:
    world = make_world(journal={"retention": "1s"})
    victim = world.started(Faults(merge_files=4, die="committed" if killed else None, at_kind=Kind.RETIRED))
    for _ in range(6):
        world.publish(2)
    received: dict[int, int] = {}
    planner = Planner(world)
    consume(planner, world, received, until=lambda: len(received) == 12 and Kind.RETIRED in kinds(world))
    if killed:
        assert victim.wait(DEADLINE_S) == -signal.SIGKILL
    table = world.store.messages_uri("json")
    consume(planner, world, received, until=lambda: DeltaTable(table).file_uris() == [])
    world.publish(3)
    consume(planner, world, received, until=lambda: len(received) == 15)
    assert received == {number: number for number in range(15)}
    assert planner.next().messages == 0, "the last lease is proven"
    log = TopicLog(world.store, world.journal_id, "json", TOPIC)
    with pytest.raises(JournalError, match="MESSAGES_RETIRED.*kept after them is 12"):
        log.pieces(0, 15)
    world.client().call(wire.Stop(journal=world.journal_id, request=request_id()))
    assert Planner(world, "later").next(limit=100).messages == 0
    moment = state_at(open_journal(world.store))
    assert of_state(moment.state) == []
    assert moment.state.ledger("WORK").depth == 0
