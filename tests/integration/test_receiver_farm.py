"""Kills of receivers, of a stream beside them and of coordinators, as real processes on one queue (R131 to R140).

`FARM_KILLS` and `FARM_SEED` make a run longer or another one; `make nightly` sets them.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyroaring import BitMap64

from spark_queue import Journal
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Kind, Removal
from tests.integration.coordinator_world import QUEUE, TOPIC, World
from tests.integration.s3_gateway import KINDS, s3_server_of
from tests.integration.s3_server import BUCKET
from tests.source_tree import ROOT
from tests.waiting import wait_until

KILLS = int(os.environ.get("FARM_KILLS", "20"))
SEED = int(os.environ.get("FARM_SEED", "20111209"))
LEASE_S = 2.0
WORKERS = 3

DEEDS = ("kill worker", "kill worker", "kill stream", "stop worker", "kill coordinator", "stop coordinator")

#: What the farm waits for at the end, in seconds.
PATIENCE_S = 120.0


class Farm:
    """Workers and a stream on one queue, and somebody who kills them."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        self._random = random.Random(SEED)
        self.journal = Journal(world.store.path, storage_options=dict(world.store.storage_options))
        self.published = 0
        self.kills: Counter[str] = Counter()
        names = [*(f"worker{number}" for number in range(WORKERS)), "stream"]
        self._processes = {name: self._start(name) for name in names}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        program = "stream" if name == "stream" else "worker"
        command = [sys.executable, "-m", "tests.integration.receiver_farm", program, self.journal.path, QUEUE]
        command.append(json.dumps(dict(self._world.store.storage_options)))
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (self._folder / f"{name}.err").open("ab") as errors:
            return subprocess.Popen([*command, str(self._folder / f"{name}.txt")], cwd=ROOT, env=environment, stderr=errors)

    def run(self, kills: int) -> None:
        """Kill, stop and publish in turns, then wait until nothing is left."""
        pause = threading.Event()
        for _ in range(kills):
            self._publish(self._random.randint(5, 40))
            pause.wait(self._random.uniform(0.2, 1.5))
            self._misbehave()
        for name in self._processes:
            self._come_back(name)
        wait_until(lambda: self.journal.queue(QUEUE).status().queue_depth == 0, self._told, deadline_s=PATIENCE_S)

    def end(self) -> None:
        """Kill whatever runs."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _publish(self, count: int) -> None:
        rows = [{"value": self._random.choice(("{}", "{}", "{}", '"bad"'))} for _ in range(count)]
        self.published += self.journal.publish(rows, topic=TOPIC).rows

    def _misbehave(self) -> None:
        what = self._random.choice(DEEDS)
        if "coordinator" in what:
            pid = self._world.ping().pid
            os.kill(pid, signal.SIGKILL if "kill" in what else signal.SIGSTOP)
            if "stop" in what:
                threading.Event().wait(self._random.uniform(0.5, 3.0))
                os.kill(pid, signal.SIGCONT)
        else:
            name = "stream" if "stream" in what else f"worker{self._random.randrange(WORKERS)}"
            process = self._processes[name]
            if "kill" in what:
                process.kill()
                process.wait()
                self._come_back(name)
            else:
                process.send_signal(signal.SIGSTOP)
                # Its leases end meanwhile.
                threading.Event().wait(LEASE_S * 1.6)
                process.send_signal(signal.SIGCONT)
        self.kills[what] += 1

    def _come_back(self, name: str) -> None:
        if self._processes[name].poll() is not None:
            self._processes[name] = self._start(name)

    def _told(self) -> str:
        left = self.journal.view("messages", queue=QUEUE).to_pylist()
        return f"{len(left)} messages are left, such as {left[:2]}"

    def lines(self) -> dict[str, list[tuple[str, int, int]]]:
        """Return what each wrote: what, bookmark, lease."""
        found = defaultdict(list)
        for path in sorted(self._folder.glob("*.txt")):
            for line in path.read_text(encoding="utf-8").splitlines():
                what, _, numbers = line.partition(" ")
                # A kill may have cut the last one short.
                if len(numbers.split()) == 2:
                    bookmark, lease = map(int, numbers.split())
                    found[path.stem].append((what, bookmark, lease))
        return found


@pytest.fixture(params=["disk", *KINDS])
def world(request: pytest.FixtureRequest, tmp_path: Path, own_user: None) -> Iterator[World]:
    """Make a journal on a local disk and in each kind of object store; its coordinators end with the test."""
    queue = {"lease_period": f"{LEASE_S:g}s", "dead_letter_queue": "FAILED"}
    with ExitStack() as ending:
        if request.param == "disk":
            made = World(tmp_path / "journal", queue=queue)
        else:
            server = ending.enter_context(s3_server_of(request.param, tmp_path / "objects"))
            made = World(f"s3://{BUCKET}/journal", storage_options=server.options, queue=queue)
        ending.callback(made.end)
        yield made


@pytest.mark.slow
@pytest.mark.timeout(300 + KILLS * 20)
def test_kills_lose_nothing_and_each_double_and_each_lost_outcome_is_explained(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "farm"
    folder.mkdir()
    farm = Farm(world, folder)
    try:
        farm.run(KILLS)
    finally:
        farm.end()
    records = [record for record in world.records() if record.queue == QUEUE]
    granted, refused = Counter[int](), set[tuple[int, int]]()
    removed: dict[int, tuple[str | None, int | None]] = {}
    for record in records:
        rows = to_bitmap(record.ranges)
        if record.kind in (Kind.GRANTED, Kind.RESUMED):
            granted.update(rows)
        elif record.kind == Kind.REMOVED:
            removed |= dict.fromkeys(rows, (record.reason, record.lease))
        elif record.kind == Kind.REFUSED:
            refused |= {(row, int(record.lease or 0)) for row in rows}
    lines = [line for each in farm.lines().values() for line in each]
    done = BitMap64(bookmark for what, bookmark, _ in lines if what == "done")
    begun = Counter(bookmark for what, bookmark, _ in lines if what == "begun")
    acknowledged = BitMap64(row for row, (reason, _) in removed.items() if reason == Removal.ACKNOWLEDGED)
    doubles = {row: count for row, count in begun.items() if count > 1}
    lost = [(bookmark, lease) for what, bookmark, lease in lines if what == "lost"]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{dict(farm.kills)}; {farm.published} messages, {len(doubles)} begun again, {len(lost)} outcomes too late\n"
        )
    assert len(removed) == farm.published
    # Nothing is acknowledged that nobody had finished.
    assert not acknowledged - done
    # No message was begun oftener than it was granted.
    assert {row: count for row, count in doubles.items() if count > granted[row]} == {}
    # Whoever was told so may rely on it, either way.
    assert not BitMap64(bookmark for what, bookmark, _ in lines if what == "acknowledged") - acknowledged
    assert [each for each in lost if each not in refused] == []
    assert {what for what, _, _ in lines} <= {"begun", "done", "acknowledged", "lost", "RECEIVER_CLOSED"}
