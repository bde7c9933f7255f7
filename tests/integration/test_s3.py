"""A journal in an object store: an S3 server, real coordinators, publishers and coordinators that race, and no JVM."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from spark_queue import Journal
from spark_queue.client.backup import back_up
from spark_queue.coordinator.process import EXIT_DOUBT
from spark_queue.core.records import Kind
from spark_queue.errors import JournalError
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import ADVERTISEMENT_KEY, Store
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.host import location_of
from spark_queue.source.partitions import MessageReader
from spark_queue.source.planning import cut
from tests.integration.coordinator_world import DEADLINE_S, QUEUE, TOPIC, Planner, World, request_id, stopped, wait_for_end
from tests.integration.faulty_coordinator import Faults
from tests.integration.s3_gateway import KINDS, s3_server_of
from tests.integration.s3_server import BUCKET, SECRET, UNCONDITIONAL, objects, s3_options, s3_server
from tests.records import detail_of
from tests.source_tree import ROOT

MakeWorld = Callable[..., World]


@pytest.fixture(scope="module", params=KINDS)
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server_of(request.param, tmp_path_factory.mktemp("objects")) as server:
        yield server.endpoint


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
def make_world(endpoint: str, tmp_path: Path) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(**options: Any) -> World:
        path = f"s3://{BUCKET}/{tmp_path.name}/journal{len(made)}"
        made.append(World(path, storage_options=s3_options(endpoint), **options))
        return made[-1]

    yield make
    for world in made:
        world.end()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


def journal_of(world: World) -> Journal:
    return Journal(world.store.path, storage_options=dict(world.store.storage_options))


def values_of(world: World, planner: Planner) -> list[int]:
    """Read the rows of the current lease as an executor does."""
    rows = planner.rows()
    reader = MessageReader(store=world.store, message_type=rows.message_type, schema=pa.schema([pa.field("value", pa.string())]))
    batches = [batch for partition in cut(rows.pieces, min_partitions=2) for batch in reader.read(partition)]
    return [json.loads(str(value))["n"] for batch in batches for value in batch.column("value").to_pylist()]


def test_messages_are_published_leased_read_proven_and_looked_at(world: World) -> None:
    world.publish(25)
    planner = Planner(world)
    planner.next(limit=10)
    assert values_of(world, planner) == list(range(10))
    planner.next(limit=100)
    assert values_of(world, planner) == list(range(10, 25))
    assert planner.next().messages == 0
    status = journal_of(world).queue(QUEUE).status()
    assert (status.available, status.backlog, status.acknowledged) == (0, 0, 25)


def test_a_coordinator_killed_with_leases_open_is_recovered_from_the_bucket(world: World) -> None:
    world.publish(30)
    planner = Planner(world)
    planner.next(limit=10)
    first = planner.bookmarks()
    for _ in range(2):
        pid = world.ping().pid
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
        world.publish(5)
    assert planner.bookmarks() == first
    assert first + planner.consume(limit=7) == list(range(40))
    assert [claim.epoch for claim in world.claims()] == [1, 2, 3]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("die", ["before", "staged", "committed", "answerless"])
def test_a_kill_around_the_conditional_put_of_a_grant_loses_and_doubles_nothing(world: World, die: str) -> None:
    world.publish(30)
    victim = world.started(Faults(die=die))
    planner = Planner(world)
    granted = planner.next(limit=10)
    assert victim.wait(DEADLINE_S) == -signal.SIGKILL
    assert (granted.lease, granted.messages) == (1, 10)
    grants = [record.epoch for record in world.records() if record.kind == Kind.GRANTED]
    assert grants == [1 if die in ("committed", "answerless") else 2]
    assert sorted(planner.bookmarks() + planner.consume()) == list(range(30))


PUBLISHER = """
import json, sys
from spark_queue import Journal
from spark_queue.client.backup import back_up
orders = json.loads(sys.stdin.readline())
journal = Journal(orders["path"], storage_options=orders["options"])
def publish(batch):
    rows = [{"value": json.dumps({"by": orders["name"], "n": batch * 3 + row})} for row in range(3)]
    journal.publish(rows, topic=orders["topic"])
# The first commit of a process takes longest.
publish(0)
print("ready", flush=True)
sys.stdin.read()
for batch in range(1, orders["batches"]):
    publish(batch)
"""


def publisher_process(world: World, name: str, *, batches: int) -> subprocess.Popen[str]:
    """Start a process that publishes three rows at a time, once its stdin is closed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", PUBLISHER], stdin=pipe, stdout=pipe, text=True, env=environment)
    options = dict(world.store.storage_options)
    orders = {"path": world.store.path, "options": options, "name": name, "batches": batches, "topic": TOPIC}
    assert process.stdin is not None
    process.stdin.write(json.dumps(orders) + "\n")
    process.stdin.flush()
    return process


def test_publishers_that_race_lose_and_double_nothing_and_keep_their_own_order(world: World) -> None:
    names, batches = ["a", "b", "c"], 12
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(publisher_process(world, name, batches=batches)) for name in names]
        for process in processes:
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(DEADLINE_S) for process in processes] == [0, 0, 0]
    values = journal_of(world).view("messages", queue=QUEUE).sort_by("bookmark").column("value").to_pylist()
    published = [json.loads(str(value)) for value in values]
    for name in names:
        assert [row["n"] for row in published if row["by"] == name] == list(range(3 * batches))
    by = [row["by"] for row in published]
    assert Counter(by) == dict.fromkeys(names, 3 * batches)
    # They did race: no publisher was done before another began.
    assert by != sorted(by, key=by.index)


def test_two_coordinators_started_at_once_agree_on_one_that_reigns(world: World) -> None:
    world.publish(5)
    processes = [world.start() for _ in range(2)]
    reports = [world.report(process) for process in processes]
    claims = world.claims()
    assert detail_of(claims[-1])["address"] in {report.address for report in reports}
    assert all(report.address is not None or report.code == "COORDINATOR_DEPOSED" for report in reports)
    for loser in (process for process in processes if process.pid != detail_of(claims[-1])["pid"]):
        loser.wait(DEADLINE_S)
    assert world.ping().pid == detail_of(claims[-1])["pid"]
    assert Planner(world).consume() == list(range(5))


def test_a_coordinator_continued_after_its_reign_puts_nothing_into_the_bucket(world: World) -> None:
    world.publish(20)
    hasty = Faults(silence_s=0.5, watch_s=2.0)
    old = world.started(hasty)
    Planner(world, "first").next(limit=5)
    with stopped(old.pid):
        world.started(hasty)
        survivor = Planner(world, "survivor")
        survivor.next(limit=7)
        before = world.records()
    assert old.wait(DEADLINE_S) == EXIT_DOUBT
    assert world.records() == before
    assert survivor.bookmarks() + survivor.consume() == list(range(5, 20))


@pytest.mark.usefixtures("coordinators_are_started")
def test_storage_options_reach_a_coordinator_on_stdin_and_are_seen_nowhere_else(world: World, endpoint: str) -> None:
    """Neither its command line, environment or open files, nor its log, the user's files, or anything stored holds the secret."""
    world.publish(5)
    planner = Planner(world)
    planner.next()
    process = psutil.Process(world.ping().pid)
    seen = [*process.cmdline(), *process.environ().values(), *process.environ()]
    log = user_files.log_path(world.journal_id, location_of(world.store))
    assert "serves s3://" in log.read_text()
    seen += [path.read_text(errors="replace") for path in user_files.state_directory().iterdir()]
    seen += [path.read_text(errors="replace") for path in user_files.runtime_directory().iterdir()]
    stored = objects(endpoint)
    assert any(key.endswith(ADVERTISEMENT_KEY) for key in stored)
    assert not [text for text in seen if SECRET in text]
    assert not [key for key, data in stored.items() if SECRET.encode() in data]
    world.client().call(wire.Stop(journal=world.journal_id, request=request_id()))
    wait_for_end(process.pid)
    assert SECRET not in log.read_text()


def test_a_store_without_conditional_puts_is_refused_before_anything_is_made() -> None:
    with s3_server(UNCONDITIONAL) as server:
        with pytest.raises(JournalError, match="STORE_UNSAFE"):
            Journal.create(f"s3://{BUCKET}/journal", storage_options=server.options)
        assert not objects(server.endpoint)


def test_a_journal_is_backed_up_within_its_store_and_to_a_disk(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world()
    world.publish(30)
    planner = Planner(world)
    assert len(planner.consume(limit=10)) == 30
    world.publish(5)
    for copy in (Store(f"{world.store.path}-copy", world.store.storage_options), Store(str(tmp_path / "copy"))):
        found = back_up(world.store, copy)
        assert open_reader(copy).records() == open_reader(world.store).records()[: found.records]
        status = Journal(copy.path, storage_options=copy.storage_options).queue(QUEUE).status()
        assert (status.acknowledged, status.available) == (30, 5)
        with pytest.raises(JournalError, match="BACKUP_TARGET_TAKEN"):
            back_up(world.store, copy)
