"""The kill farm: two consumers of one queue on real Spark, a publisher, and a hand that kills parts of them at random."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from spark_queue import Journal
from spark_queue.journal.open import open_journal
from spark_queue.views import state_at
from tests.acceptance.farm.load import Load

#: What can be killed, and how its process is told from others below a consumer, by a part of its command line.
VICTIMS = {
    "coordinator": "spark_queue.coordinator",
    "planner": "python_streaming_source_runner",
    "worker": "pyspark.daemon",
    "jvm": "org.apache.spark.deploy.SparkSubmit",
    "driver": "tests.acceptance.farm.consumer",
}

#: Environment variable by which a coordinator tells whose consumers started it.
OF_FARM = "SPARK_QUEUE_FARM"

LOOK_AGAIN_S = 0.1

#: Killing a JVM or a driver costs a start of Spark, so it is drawn less often.
WEIGHTS = {"coordinator": 5, "planner": 5, "worker": 4, "jvm": 1, "driver": 1}


@dataclass
class Farm:
    """One run of the farm.

    Parameters
    ----------
    folder
        Where journal, checkpoints, sink and logs go.
    seed
        What decides victims and moments.
    load
        What is published, and to what queue.
    """

    folder: Path
    seed: int
    load: Load
    kills: Counter[str] = field(default_factory=Counter)
    published: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.path = str(self.folder / "journal")
        (self.folder / "sink").mkdir()
        self.journal = Journal.create(self.path, self.load.definitions())
        self._consumers: dict[str, subprocess.Popen[bytes]] = {}
        self._over = threading.Event()

    def run(self, *, kills: int, patience_s: float) -> None:
        """Publish, consume and kill; then wait for what is left, as long as it gets less, and stop the consumers."""
        publisher = threading.Thread(target=self._publish)
        try:
            self._keep_running()
            publisher.start()
            for kind in self.random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=kills):
                self._over.wait(self.random.uniform(0.3, 2.5))
                while not self._kill_one(kind):
                    self._over.wait(LOOK_AGAIN_S)
                    self._keep_running()
            self._over.set()
            publisher.join()
            self._drain(patience_s)
        finally:
            self._over.set()
            self._stop()

    def _publish(self) -> None:
        while not self._over.wait(0.25):
            rows = [{"value": json.dumps(self.load.body(self.published + number))} for number in range(150)]
            self.published += self.journal.publish(rows, topic="ORDERS").rows

    def _keep_running(self) -> None:
        for name in ("first", "second"):
            if name not in self._consumers or self._consumers[name].poll() is not None:
                command = [sys.executable, "-m", "tests.acceptance.farm.consumer", "--journal", self.path]
                pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
                with (self.folder / f"{name}.log").open("ab") as log:
                    self._consumers[name] = subprocess.Popen(
                        [*command, "--subscription", name, "--folder", str(self.folder)],
                        stdout=log, stderr=log, start_new_session=True,
                        env={**os.environ, **pythons, OF_FARM: str(self.folder)},
                    )  # fmt: skip

    def _kill_one(self, kind: str) -> bool:
        """Kill one random part of a kind; returns whether there was one."""
        candidates = self._coordinators() if kind == "coordinator" else self._parts(VICTIMS[kind])
        if not candidates:
            return False
        victim = self.random.choice(sorted(candidates, key=lambda process: process.pid))
        try:
            victim.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return False
        self.kills[kind] += 1
        return True

    def _coordinators(self) -> list[psutil.Process]:
        """Return the coordinators that this farm's consumers started; they outlive them, and tell whose they are by a variable."""
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = VICTIMS["coordinator"] in _command_line(process) and process.environ().get(OF_FARM) == str(self.folder)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if is_ours:
                found.append(process)
        return found

    def _parts(self, name: str) -> list[psutil.Process]:
        """Return the parts of a kind of the consumers whose stream has begun: what is only starting proves little by its death."""
        found = []
        for consumer in self._consumers.values():
            try:
                driver = psutil.Process(consumer.pid)
                parts = {process: _command_line(process) for process in (driver, *driver.children(recursive=True))}
            except psutil.NoSuchProcess:
                continue
            if any(VICTIMS["planner"] in line for line in parts.values()):
                found += [process for process, line in parts.items() if name in line]
        return found

    def _drain(self, patience_s: float) -> None:
        """Wait until nothing is left, keeping the consumers alive."""
        left, deadline = self._left(), time.monotonic() + patience_s
        while left and time.monotonic() < deadline:
            self._keep_running()
            threading.Event().wait(0.5)
            before, left = left, self._left()
            if left < before:
                deadline = time.monotonic() + patience_s

    def _left(self) -> int:
        """Count the messages in the queue, and the barriers that were released and wait for a consumer to receive them."""
        ledger = state_at(open_journal(self.journal.store)).state.ledger("WORK")
        return ledger.depth + sum(len(each.barriers) for each in ledger.subscriptions.values())

    def _stop(self) -> None:
        (self.folder / "stop").touch()
        for consumer in self._consumers.values():
            try:
                consumer.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(consumer.pid, signal.SIGKILL)
                consumer.wait()
        subprocess.run([sys.executable, "-m", "spark_queue.cli", "stop", self.path], check=True, stdout=subprocess.DEVNULL)


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
