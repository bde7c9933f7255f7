"""One journal of the farm: its consumers, and who publishes to it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from spark_queue import Journal
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import SparkQueueError
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

#: With so many messages in the queue nothing more is published there: an instance asks for what others have after its own.
BEHIND = 2_000


def _is_coordinators(line: str) -> bool:
    """Return whether a process is a coordinator, or reads a peer for one."""
    return VICTIMS["coordinator"] in line or "spark_queue.replication.sandbox" in line


class Site:
    """A journal, and some consumers of its queue.

    Parameters
    ----------
    folder
        Where journal, checkpoints, sink and logs go.
    consumers
        The names of their subscriptions.
    table
        The Delta table into which all of them append what they acknowledge; None for consumers that acknowledge by themselves.
    """

    def __init__(
        self, folder: Path, load: Load, definitions: Mapping[str, Any], consumers: Sequence[str], *, table: Path | None = None
    ) -> None:
        self.folder = folder
        self.table = table
        self.load = load
        (folder / "sink").mkdir(parents=True)
        self.journal = Journal.create(str(folder / "journal"), dict(definitions))
        self._definitions = definitions
        self.published = 0
        self._consumers: dict[str, subprocess.Popen[bytes] | None] = dict.fromkeys(consumers)
        #: Whether its consumers stand still.
        self._is_frozen = False
        self._lost = folder / "lost"
        #: Nobody may find the journal gone in the middle of a publish: whether that took place would not be known.
        self._there = threading.Lock()

    @property
    def is_lost(self) -> bool:
        """Whether the journal has disappeared."""
        return self._lost.exists()

    def vanish(self) -> None:
        """Take the journal away from everybody."""
        with self._there:
            Path(self.journal.path).rename(self._lost)

    def come_back(self) -> None:
        """Put the journal where it was."""
        place = Path(self.journal.path)
        with self._there:
            # delta-rs makes folders anew; whatever was written there nobody would find again, or it would pass for the journal.
            strays = [str(each.relative_to(place)) for each in place.rglob("*") if each.is_file()]
            assert not strays, strays
            shutil.rmtree(place, ignore_errors=True)
            self._lost.rename(place)

    def publish(self, count: int) -> None:
        """Publish the next messages, unless the journal is gone."""
        with self._there:
            rows = [{"value": json.dumps(self.load.body(self.published + number))} for number in range(count)]
            if not self.is_lost:
                self.published += self.journal.publish(rows, topic="ORDERS").rows

    def alter(self, **keys: str) -> bool:
        """Give the queue these keys beside its first ones, on this instance alone; returns whether that was heard."""
        queues = self._definitions["queues"]
        try:
            self.journal.apply({**self._definitions, "queues": {**queues, "WORK": {**queues["WORK"], **keys}}})
        except SparkQueueError:
            return False
        return True

    def is_behind(self) -> bool:
        """Return whether consumers have so much to do that more would prove nothing, and let others wait for their turn."""
        with self._there:
            return not self.is_lost and self.ledger().depth > BEHIND

    def freeze(self) -> None:
        """Stop the consumers where they are, as on a host that is paused: nobody asks here for messages any more."""
        self._is_frozen = True
        # What is stopped last may have started others meanwhile.
        for _ in range(3):
            self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the consumers go on where they were."""
        self._is_frozen = False
        self._signal(signal.SIGCONT)

    def pause_one(self, chance: random.Random, pause_s: float) -> bool:
        """Let one consumer stand still for a while, and go on as if nothing had happened; returns whether there was one."""
        running = [parts for parts in self._processes() if any(VICTIMS["planner"] in line for line in parts.values())]
        if not running:
            return False
        parts = [process for process, line in chance.choice(running).items() if not _is_coordinators(line)]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process in parts:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            threading.Event().wait(pause_s if number == signal.SIGSTOP else 0)
        return True

    def keep_running(self, environment: Mapping[str, str]) -> None:
        """Start the consumers that do not run, unless they stand still."""
        if self._is_frozen:
            return
        pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        for name, consumer in self._consumers.items():
            if consumer is None or consumer.poll() is not None:
                command = [sys.executable, "-m", "tests.acceptance.farm.consumer", "--journal", self.journal.path]
                command += [] if self.table is None else ["--into", str(self.table)]
                with (self.folder / f"{name}.log").open("ab") as log:
                    self._consumers[name] = subprocess.Popen(
                        [*command, "--subscription", name, "--folder", str(self.folder)],
                        stdout=log, stderr=log, start_new_session=True, env={**os.environ, **pythons, **environment},
                    )  # fmt: skip

    def parts(self, name: str) -> list[psutil.Process]:
        """Return the parts of a kind of the consumers whose stream has begun: what is only starting proves little by its death."""
        found = []
        for parts in self._processes():
            if any(VICTIMS["planner"] in line for line in parts.values()):
                found += [process for process, line in parts.items() if name in line]
        return found

    def _processes(self) -> Iterator[dict[psutil.Process, str]]:
        """Yield the processes of each consumer, and what started them."""
        for consumer in filter(None, self._consumers.values()):
            try:
                driver = psutil.Process(consumer.pid)
                yield {process: command_line(process) for process in (driver, *driver.children(recursive=True))}
            except psutil.NoSuchProcess:
                continue

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the consumers, but not to a coordinator that one of them has started."""
        for parts in self._processes():
            for process, line in parts.items():
                if not _is_coordinators(line):
                    with suppress(psutil.NoSuchProcess):
                        process.send_signal(number)

    def left(self) -> int:
        """Count the messages in the queue, and the barriers that were released and wait for a consumer to receive them."""
        ledger = self.ledger()
        return ledger.depth + len(ledger.rows[State.REMOTE]) + sum(len(each.barriers) for each in ledger.subscriptions.values())

    def is_served(self) -> bool:
        """Return whether a coordinator answers; where there was none it is started, as by any caller."""
        try:
            self.journal.queue("WORK").unpause()
        except SparkQueueError:
            return False
        return True

    def is_returning(self) -> bool:
        """Return whether the instance was away, and waits until it has heard from its peers (R130)."""
        return state_at(open_journal(self.journal.store)).state.returning is not None

    def ledger(self) -> QueueLedger:
        """Return what the log says of the queue."""
        return state_at(open_journal(self.journal.store)).state.ledger("WORK")

    def stop(self) -> None:
        """Stop the consumers, and the coordinator."""
        (self.folder / "stop").touch()
        for consumer in filter(None, self._consumers.values()):
            try:
                consumer.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(consumer.pid, signal.SIGKILL)
                consumer.wait()
        subprocess.run([sys.executable, "-m", "spark_queue.cli", "stop", self.journal.path], check=True, stdout=subprocess.DEVNULL)


def command_line(process: psutil.Process) -> str:
    """Return what started a process; nothing where it has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
