"""Old and new software take turns on one journal, host by host, while old callers go on (docs/operations/upgrades.md).

The old one comes out of the history: the newest release, or a commit from before coordinators had stand-ins. A copy of it among the
tests would be 300 kB of source that nobody may edit, and would be made anew with each release. So a clone without that part of its
history fails here, and says how to get it. A tree without any history, as in an archive of the source, has nothing to take it from:
there a second copy of this software takes the same turns, and the run says so.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from spark_queue.errors import CoordinatorError
from tests.integration.coordinator_world import DEADLINE_S, QUEUE, TOPIC, World
from tests.integration.sites import journal_of
from tests.integration.test_standby import Consumer
from tests.source_tree import ROOT

#: The last commit without stand-ins, for as long as there is no release.
BEFORE = "5e2ac32"


def _git(*arguments: str) -> bytes | None:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


@pytest.fixture
def old_software(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a directory with the package as it was."""
    place = tmp_path / "old"
    place.mkdir()
    if not (ROOT / ".git").exists():
        shutil.copytree(ROOT / "spark_queue", place / "spark_queue")
        with capsys.disabled():
            print("\nThere is no git history here, so this software takes turns with itself.")  # noqa: T201  # For who runs it.
        return place
    tag = _git("describe", "--tags", "--abbrev=0")
    before = tag.decode().strip() if tag else BEFORE
    archive = _git("archive", before, "spark_queue")
    if archive is None:
        pytest.fail(f"This clone does not have {before}, the software of before. Fetch it: git fetch --unshallow --tags")
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(place, filter="data")
    return place


class Turns:
    """A journal, and the versions that serve it at two addresses."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.addresses = [f"127.0.0.{last}:{_free_port()}" for last in (1, 2)]

    @contextmanager
    def serving(self, software: Path, address: str, *arguments: str, waits: bool = False) -> Iterator[subprocess.Popen[str]]:
        """Run one version's `sparkq serve`, until it serves or stands by."""
        command = [sys.executable, "-m", "spark_queue.cli", "serve", self.world.store.path, "--json", "--bind", address, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(software)}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=software, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
            try:
                if waits:
                    assert process.stderr is not None
                    assert "takes over when" in process.stderr.readline()
                else:
                    serves(process)
                yield process
            finally:
                process.kill()

    def call(self, software: Path, *arguments: str, said: str = "") -> None:
        """Run a verb of one version."""
        command = [sys.executable, "-m", "spark_queue.cli", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(software), "SPARKQ_COORDINATOR": ",".join(self.addresses)}
        done = subprocess.run(command, cwd=software, input=said, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr

    def call_old(self, software: Path, address: str) -> None:
        """Publish, and change a queue, by an old version."""
        self.call(software, "publish", self.world.store.path, "-", "--format", "jsonl", "--topic", TOPIC, said='{"value": "1"}\n')
        for verb in ("pause", "unpause"):
            self.call(software, verb, self.world.store.path, QUEUE, "--coordinator", address)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def serves(process: subprocess.Popen[str]) -> None:
    """Wait until a coordinator serves."""
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["address"]


def ends(process: subprocess.Popen[str]) -> None:
    """Stop a coordinator in good order, as a service is stopped."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0


def test_old_and_new_software_take_turns_and_callers_are_upgraded_last(old_software: Path, tmp_path: Path) -> None:
    world = World(tmp_path / "journal", queue={"lease_period": "20s"})
    turns = Turns(world)
    first, second = turns.addresses
    with ExitStack() as stack:
        stack.callback(world.end)
        old = stack.enter_context(turns.serving(old_software, first))
        new = stack.enter_context(turns.serving(ROOT, second, "--standby", waits=True))
        turns.call_old(old_software, first)
        with pytest.raises(CoordinatorError, match="COORDINATOR_OLDER"):
            # It would have to be sent the token itself.
            Consumer(world, first)

        ends(old)
        serves(new)
        # The old ones publish to, and speak with, the new coordinator.
        turns.call_old(old_software, second)
        consumer = Consumer(world, ",".join(turns.addresses))
        stack.callback(consumer.end)
        consumer.wait_for(10)
        consumer.end()

        # And back, as long as nothing new was used; callers go back first.
        ends(new)
        with turns.serving(old_software, first) as old:
            turns.call_old(old_software, first)
            ends(old)
        with turns.serving(ROOT, second):
            again = Consumer(world, second)
            again.wait_for(10)
            again.end()
        consumer.received += again.received
    assert sorted(consumer.received) == list(range(len(consumer.received)))
    status = journal_of(world).queue(QUEUE).status()
    assert (status.acknowledged, status.queue_depth) == (len(consumer.received), 0)
    assert [claim.epoch for claim in world.claims()] == [1, 2, 3, 4]
    for software in (old_software, ROOT):
        turns.call(software, "verify", world.store.path)
