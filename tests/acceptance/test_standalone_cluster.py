"""A Spark standalone cluster of machines that share no disk, over a journal on S3, while machines are killed (`make cluster`)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.acceptance.standalone.cluster import MASTER, NAMES, QUEUE_HOSTS, WORKERS, cluster_of, size_of
from tests.acceptance.standalone.run import run
from tests.integration.hosts import KINDS, NAMESPACES
from tests.integration.s3_gateway import KINDS as SERVERS

MESSAGES = 8_000


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """Fail where a process below this one, a namespace or a cable is left."""
    processes = set(psutil.Process().children(recursive=True))
    network = _network()
    yield
    left = set(psutil.Process().children(recursive=True)) - processes
    assert not [" ".join(process.cmdline()) for process in left]
    assert _network() <= network


def _network() -> set[str]:
    """Return the names of cables and namespaces that this process would have made."""
    shown = [
        subprocess.run(["ip", "-brief", *what], capture_output=True, text=True, check=True).stdout for what in (["link"], ["netns"])
    ]
    return {line.split()[0] for text in shown for line in text.splitlines() if f"sq{os.getpid()}" in line}


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS[:1])
def test_nothing_is_lost_while_a_worker_a_driver_and_the_serving_coordinator_are_killed(
    tmp_path: Path, nothing_is_left: None, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Where this user may make no namespaces, the machines are loopback addresses, as the name of the test then says."""
    with cluster_of(NAMES, tmp_path, size_of(MESSAGES), kind=kind, server=SERVERS[-1]) as cluster:
        outcome = run(cluster, kills=True, say=lambda _: None)
    books = outcome.books
    assert books.broken == {}
    assert [name for name in outcome.killed_at_s if name not in QUEUE_HOSTS] == [WORKERS[0], "driver-1"]
    assert len(outcome.killed_at_s) == 3
    if kind == NAMESPACES:
        assert books.executors == set(WORKERS)
        assert not books.saw_a_driver_disk
    assert MASTER in cluster.machines
