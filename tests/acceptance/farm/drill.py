"""A drill: one consumer with a stateful query, of which one part after the other is killed at a named point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from spark_queue import Journal
from tests.acceptance.farm.gates import POINTS, Gates
from tests.acceptance.farm.site import VICTIMS
from tests.source_tree import ROOT
from tests.waiting import wait_until

DEFINITIONS = {
    "message_types": {"json": {"topics": ["ORDERS"]}},
    # No lease ends during a drill: whatever comes back does so because its owner does.
    "queues": {name: {"underlying_topic": "ORDERS", "lease_period": "10m"} for name in ("WORK", "CALM")},
}

#: What each publishing adds; every one is a micro-batch of its own.
MESSAGES = 25

#: How long anything may take before the drill is given up; a start of Spark is the longest.
DEADLINE_S = 200.0


class Consumer:
    """One driver process, and what Spark started below it."""

    def __init__(self, journal: Journal, folder: Path, queue: str) -> None:
        self._folder = folder
        arguments = {"journal": journal.path, "subscription": "s", "folder": str(folder), "queue": queue}
        command = [sys.executable, "-m", "tests.acceptance.farm.consumer", "--counts"]
        pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        with (folder / "log").open("ab") as log:
            self.driver = subprocess.Popen(
                command + [part for name, value in arguments.items() for part in (f"--{name}", value)],
                stdout=log, stderr=log, env={**os.environ, **pythons},
            )  # fmt: skip

    def processes(self) -> list[psutil.Process]:
        """Return the driver and all below it, without the coordinator, which outlives them."""
        driver = psutil.Process(self.driver.pid)
        return [part for part in (driver, *driver.children(recursive=True)) if not _is(part, "coordinator")]

    def parts(self, victim: str) -> list[psutil.Process]:
        """Return the processes of one kind; a worker is below the daemon that forks workers, which stays."""
        found = [part for part in self.processes() if _is(part, victim)]
        return found if victim != "worker" else [part for part in found if part.ppid() in {each.pid for each in found}]

    def wait_for_end(self, processes: list[psutil.Process]) -> None:
        """Wait until the driver has ended, and all that was below it."""
        self.driver.wait(DEADLINE_S)
        wait_until(lambda: not any(map(_lives, processes)), self.log, deadline_s=DEADLINE_S)

    def wait_until(self, what: Callable[[], bool]) -> None:
        """Wait for something that only a living driver brings about."""
        wait_until(lambda: self.driver.poll() is not None or what(), self.log, deadline_s=DEADLINE_S)
        assert self.driver.poll() is None, self.log()

    def stop(self) -> None:
        """End it as a person would."""
        processes = self.processes()
        (self._folder / "stop").touch()
        self.wait_for_end(processes)

    def end(self) -> None:
        """Stop it, if it lives."""
        if self.driver.poll() is None:
            self.stop()

    def log(self) -> str:
        """Return the end of what it said."""
        return (self._folder / "log").read_text(errors="replace")[-3_000:]


class Drill:
    """A journal, its consumer, and what the sink and the log say of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.journal = Journal.create(str(folder / "journal"), DEFINITIONS)
        self.gates = Gates(folder=folder)
        self.published = 0
        (folder / "sink").mkdir()
        self.consumer = self.start()

    def start(self) -> Consumer:
        """Start the driver, again where one has ended."""
        self.consumer = Consumer(self.journal, self._folder, "WORK")
        return self.consumer

    def publish(self) -> None:
        """Publish some orders."""
        rows = [{"value": json.dumps({"item": item_of(self.published + number)})} for number in range(MESSAGES)]
        self.published += self.journal.publish(rows, topic="ORDERS").rows

    def wait_for(self, point: str) -> int:
        """Wait until somebody has come to a closed gate, and give the id of that process."""
        self.consumer.wait_until(lambda: self.gates.who_came_to(point) is not None)
        return self.gates.who_came_to(point) or 0

    def kill(self, victim: str, came: int) -> None:
        """Kill -9 one kind of process; among workers the one that came to the point, if it was one of them."""
        if victim == "coordinator":
            hint = json.loads(Path(self.journal.path, "coordinator.json").read_bytes())
            killed = [psutil.Process(hint["pid"])]
        else:
            killed = self.consumer.parts(victim)
        if victim == "worker" and came in {part.pid for part in killed}:
            killed = [psutil.Process(came)]
        assert killed, f"no {victim} lives"
        for part in killed:
            part.send_signal(signal.SIGKILL)
        if victim == "driver":
            self.consumer.driver.wait()
        wait_until(lambda: not any(map(_lives, killed)), self.consumer.log, deadline_s=DEADLINE_S)

    def drain(self) -> None:
        """Wait until every message was acknowledged."""
        self.consumer.wait_until(lambda: len(self.acknowledged()) >= self.published)

    def history(self, kind: str) -> list[dict[str, Any]]:
        """Return the control log's records of one kind about the consumer's queue."""
        return [record for record in self.journal.view("history", queue="WORK").to_pylist() if record["kind"] == kind]

    def acknowledged(self) -> list[int]:
        """Return the bookmarks of all delete markers."""
        ranges = [each for record in self.history("removed") if record["reason"] == "acknowledged" for each in record["ranges"]]
        return sorted(row for each in ranges for row in range(each["first"], each["until"]))

    def is_proven(self, lease: int) -> bool:
        """Return whether a lease was proven."""
        return any(record["lease"] == lease for record in self.history("proven"))

    def wait_for_proof(self, lease: int) -> None:
        """Wait until a lease was proven."""
        self.consumer.wait_until(lambda: self.is_proven(lease))

    def offsets_name(self, lease: int) -> bool:
        """Return whether Spark's offset log names a lease."""
        logs = (self._folder / "checkpoint-s" / "offsets").glob("[0-9]*")
        return any(f'"lease":{lease}}}' in log.read_text().replace(" ", "") for log in logs)

    def end(self) -> None:
        """End the consumer, if it lives."""
        for point in POINTS:
            self.gates.open(point)
        self.consumer.end()

    def counts(self) -> dict[str, int]:
        """Return what the sink holds in the end; runs of one batch must have said the same."""
        return counts_of(self._folder / "sink")

    def undisturbed_counts(self) -> dict[str, int]:
        """Run the same query over the same messages, with nobody killed."""
        folder = self._folder / "calm"
        (folder / "sink").mkdir(parents=True)
        consumer = Consumer(self.journal, folder, "CALM")
        queue = self.journal.queue("CALM")
        try:
            consumer.wait_until(lambda: queue.status().acknowledged == self.published)
        finally:
            consumer.end()
        return counts_of(folder / "sink")


def item_of(number: int) -> str:
    """Name the item that an order is of."""
    return f"item {number % 7}"


def counts_of(sink: Path) -> dict[str, int]:
    """Return the newest count of each item."""
    runs = sorted((json.loads(file.read_text()) for file in sink.glob("*.json")), key=lambda run: run["batch"])
    batches: dict[int, dict[str, int]] = {}
    for run in runs:
        assert batches.setdefault(run["batch"], run["counts"]) == run["counts"], f"batch {run['batch']} was not the same again"
    return {item: count for run in runs for item, count in run["counts"].items()}


def expected_counts(published: int) -> dict[str, int]:
    """Count by hand."""
    return dict(Counter(map(item_of, range(published))))


def _is(process: psutil.Process, victim: str) -> bool:
    try:
        return VICTIMS[victim] in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
