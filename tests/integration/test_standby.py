"""Coordinators on two hosts, one of which stands in for the other: nobody loses anything, or waits for 20 s (DESIGN 15.16)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.coordinator.process import EXIT_DOUBT
from spark_queue.core.records import Kind
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint
from tests.integration.coordinator_world import DEADLINE_S, QUEUE, Planner, World
from tests.integration.hosts import KINDS, Host, Hosts, hosts_of
from tests.integration.s3_server import BUCKET, HOST, s3_server
from tests.records import detail_of
from tests.source_tree import ROOT

# Each commit draws the hosts and the store of each test.
pytestmark = pytest.mark.drawn(1)

#: What the end of the host that serves may cost a consumer, in seconds.
PAUSE_MOST_S = 20.0

LEASE_PERIOD_S = 12


@pytest.fixture(params=KINDS)
def hosts(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    with hosts_of(request.param, tmp_path) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture(params=["shared disk", "S3"])
def world(request: pytest.FixtureRequest, hosts: Hosts, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        where: dict[str, Any] = {"path": tmp_path / "journal"}
        if request.param == "S3":
            server = stack.enter_context(s3_server(HOST, hosts.here))
            where = {"path": f"s3://{BUCKET}/journal", "storage_options": server.options}
        made = World(queue={"lease_period": f"{LEASE_PERIOD_S}s"}, **where)
        yield made
        made.end()


class StandIn:
    """`sparkq serve --standby` on one of two hosts."""

    def __init__(self, store: Store, hosts: Hosts, host: Host, address: str | None = None) -> None:
        self.host = host
        self.address = address or _free_address(host)
        storage = [argument for pair in store.storage_options.items() for argument in ("-o", "=".join(pair))]
        serve = ["serve", store.path, "--standby", "--bind", self.address, "--json", *hosts.arguments, *storage]
        self.process = subprocess.Popen(
            [*host.prefix, sys.executable, "-m", "spark_queue.cli", *serve],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        #: What it logs, which nobody else reads off the pipe.
        self.log: list[str] = []
        self._waits = threading.Event()
        threading.Thread(target=self._read_log, daemon=True).start()

    def serves(self) -> None:
        """Wait until it serves."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log
        assert json.loads(line)["address"].endswith(self.address)

    def waits(self) -> None:
        """Wait until it has said that it waits."""
        assert self._waits.wait(DEADLINE_S), self.log

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if "takes over when that one is silent" in line:
                    self._waits.set()


def _free_address(host: Host) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"{host.address}:{free.getsockname()[1]}"


@pytest.fixture
def pair(world: World, hosts: Hosts) -> Iterator[tuple[StandIn, StandIn]]:
    """Have one that serves, and one that stands by."""
    with ExitStack() as stack:
        first = StandIn(world.store, hosts, hosts.all[0])
        stack.callback(first.end)
        first.serves()
        second = StandIn(world.store, hosts, hosts.all[1])
        stack.callback(second.end)
        second.waits()
        yield first, second


class Consumer:
    """Consumes while messages are published, from a thread of its own; a failed call ends it."""

    def __init__(self, world: World, addresses: str) -> None:
        self.received: list[int] = []
        self.failure: BaseException | None = None
        #: The longest that one call took, in seconds.
        self.longest_s = 0.0
        self.published = 0
        self._world = world
        self._planner = Planner(world, client=world.client(endpoint=Endpoint(addresses)))
        self._told_to_end = threading.Event()
        self._got = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        """Publish until so many messages have arrived."""
        deadline_s = time.monotonic() + DEADLINE_S
        while len(self.received) < count:
            assert time.monotonic() < deadline_s, f"{len(self.received)} of {count}"
            if self.failure is not None:
                raise self.failure
            self._world.publish(3)
            self.published += 3
            with self._got:
                self._got.wait(0.2)

    def end(self) -> None:
        """Take what is left, and end."""
        self._told_to_end.set()
        self._thread.join(2 * DEADLINE_S)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._told_to_end.is_set():
                self._step()
            # A busy coordinator may answer that there is nothing before the last messages have entered.
            deadline_s = time.monotonic() + DEADLINE_S
            while len(self.received) < self.published and time.monotonic() < deadline_s:
                self._step()
            # The call after the last messages is what acknowledges them.
            self._step()
        except BaseException as failure:  # noqa: BLE001  # The test raises it.
            self.failure = failure

    def _step(self) -> None:
        began_s = time.monotonic()
        granted = self._planner.next(limit=20, wait_ms=200)
        if granted.messages:
            self.received += self._planner.bookmarks()
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        with self._got:
            self._got.notify()


@contextmanager
def consuming(world: World, pair: tuple[StandIn, StandIn]) -> Iterator[Consumer]:
    """Have a busy consumer that knows both addresses; in the end it has received everything once."""
    consumer = Consumer(world, ",".join(stand_in.address for stand_in in pair))
    try:
        consumer.wait_for(10)
        yield consumer
    finally:
        consumer.end()
    status = Journal(world.store.path, storage_options=dict(world.store.storage_options)).queue(QUEUE).status()
    assert sorted(consumer.received) == list(range(consumer.published))
    assert (status.acknowledged, status.queue_depth) == (len(consumer.received), 0)
    assert consumer.longest_s < PAUSE_MOST_S


def reigns(world: World) -> list[str]:
    return [str(detail_of(claim)["address"]).partition("//")[2] for claim in world.claims()]


def test_a_kill_of_the_one_that_serves_costs_a_busy_consumer_a_pause_and_nothing_else(
    world: World, pair: tuple[StandIn, StandIn]
) -> None:
    first, second = pair
    with consuming(world, pair) as consumer:
        first.process.kill()
        second.serves()
        consumer.wait_for(len(consumer.received) + 20)
    assert reigns(world) == [first.address, second.address]
    assert [record for record in world.records() if record.kind == Kind.RETURNED] == []


def test_one_that_vanished_and_comes_back_is_fenced(world: World, pair: tuple[StandIn, StandIn]) -> None:
    """Its host says nothing more, as after a power cut or behind a broken cable; later it goes on where it was."""
    first, second = pair
    with consuming(world, pair) as consumer:
        os.kill(first.process.pid, signal.SIGSTOP)
        first.host.connect(connected=False)
        second.serves()
        consumer.wait_for(len(consumer.received) + 20)
        first.host.connect(connected=True)
        os.kill(first.process.pid, signal.SIGCONT)
        assert first.process.wait(DEADLINE_S) == EXIT_DOUBT
        consumer.wait_for(len(consumer.received) + 20)
    assert reigns(world) == [first.address, second.address]
    assert {record.epoch for record in world.records()[-5:]} == {2}


def test_one_that_ends_in_good_order_hands_over_within_seconds(world: World, hosts: Hosts, pair: tuple[StandIn, StandIn]) -> None:
    """As for an upgrade, host by host: each is stopped, and started again behind the other."""
    first, second = pair
    with consuming(world, pair) as consumer:
        began_s = time.monotonic()
        first.process.terminate()
        second.serves()
        assert time.monotonic() - began_s < PAUSE_MOST_S / 2
        assert first.process.wait(DEADLINE_S) == 0
        consumer.wait_for(len(consumer.received) + 20)
        again = StandIn(world.store, hosts, first.host, first.address)
        try:
            again.waits()
            second.process.terminate()
            again.serves()
            consumer.wait_for(len(consumer.received) + 20)
            consumer.end()
        finally:
            again.end()
    assert reigns(world) == [first.address, second.address, first.address]
