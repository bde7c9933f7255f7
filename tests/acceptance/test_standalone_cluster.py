"""A Spark standalone cluster of machines that share no disk, over a journal on S3, while machines are killed (`make cluster`)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue import Journal
from tests.acceptance.standalone.books import balance
from tests.acceptance.standalone.cluster import DRIVERS, NAMES, QUEUE_HOSTS, WORKERS, cluster_of, size_of
from tests.acceptance.standalone.driver import SEEN
from tests.acceptance.standalone.run import run
from tests.integration.coordinator_world import Planner, World
from tests.integration.hosts import KINDS, NAMESPACES
from tests.integration.s3_gateway import KINDS as SERVERS

MESSAGES = 8_000

#: As many as one lease of the tests' planner takes.
MESSAGES_OF_BOOKS = 10


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """Fail where a process below this one, a namespace or a cable is left; what Spark of other tests starts meanwhile is theirs."""
    processes = set(psutil.Process().children(recursive=True))
    network = _network()
    yield
    left = set(psutil.Process().children(recursive=True)) - processes
    assert not [" ".join(process.cmdline()) for process in left if processes.isdisjoint(process.parents())]
    assert _network() <= network


def _network() -> set[str]:
    """Return the names of cables and namespaces that this process would have made."""
    lists = (["ip", "-brief", "link"], ["ip", "netns"])
    lines = [line for of in lists for line in subprocess.run(of, capture_output=True, text=True, check=True).stdout.splitlines()]
    return {line.split()[0] for line in lines if f"sq{os.getpid()}" in line}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS[:1])
def test_nothing_is_lost_while_a_worker_a_driver_and_the_serving_coordinator_are_killed(
    tmp_path: Path, nothing_is_left: None, kind: str
) -> None:
    """Where this user may make no namespaces, the machines are loopback addresses, as the name of the test then says."""
    with cluster_of(NAMES, tmp_path, size_of(MESSAGES), kind=kind, server=SERVERS[-1]) as cluster:
        outcome = run(cluster, kills=True, say=lambda _: None)
    books = outcome.books
    assert books.broken == {}
    assert [name for name in outcome.killed_at_s if name not in QUEUE_HOSTS] == [WORKERS[0], DRIVERS[0]]
    assert len(outcome.killed_at_s) == 3
    if kind == NAMESPACES:
        assert books.executors == set(WORKERS)
        assert not books.saw_a_driver_disk


@pytest.fixture
def consumed(tmp_path: Path) -> Iterator[Journal]:
    """Have a journal whose ten messages were delivered and acknowledged."""
    world = World(tmp_path / "journal")
    world.publish(MESSAGES_OF_BOOKS)
    assert Planner(world).consume() == list(range(MESSAGES_OF_BOOKS))
    yield Journal(world.store.path)
    world.end()


def sink_of(folder: Path, *, bookmarks: list[int], ids: list[int], wrong_bodies: int = 0) -> Path:
    """Write what an executor saw."""
    folder.mkdir()
    row = {"executor": "here", "driver_disk": False, "wrong_bodies": wrong_bodies, "bookmarks": bookmarks, "ids": ids}
    pq.write_table(pa.Table.from_pylist([row], schema=SEEN), folder / "run.parquet")
    return folder


ALL = list(range(MESSAGES_OF_BOOKS))


@pytest.mark.parametrize(
    ("seen", "broken"),
    [
        pytest.param({"bookmarks": ALL, "ids": ALL}, {}, id="they balance"),
        pytest.param({"bookmarks": ALL[1:], "ids": ALL[1:]}, {"misnumbered": 1, "lost": 1}, id="one was seen by nobody"),
        pytest.param({"bookmarks": [*ALL, 3], "ids": [*ALL, 3]}, {"unexpected": 1}, id="one was seen twice, and delivered once"),
        pytest.param({"bookmarks": [*ALL, 10], "ids": [*ALL, 3]}, {"misnumbered": 1}, id="one was published twice"),
        pytest.param({"bookmarks": ALL, "ids": ALL, "wrong_bodies": 2}, {"wrong_bodies": 2}, id="two had another body"),
    ],
)
def test_books_tell_what_is_wrong(consumed: Journal, tmp_path: Path, seen: dict[str, Any], broken: dict[str, int]) -> None:
    assert balance(consumed, [sink_of(tmp_path / "sink", **seen)], MESSAGES_OF_BOOKS).broken == broken


def test_books_tell_what_is_not_finished(consumed: Journal, tmp_path: Path) -> None:
    """Two more messages should have been published."""
    more = list(range(MESSAGES_OF_BOOKS + 2))
    books = balance(consumed, [sink_of(tmp_path / "sink", bookmarks=more, ids=more)], len(more))
    assert books.broken == {"unfinished": 2, "unexpected": 2}
