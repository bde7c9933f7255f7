"""A journal on disk and its coordinators as real processes, for the tests that stop, kill and delay them."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow as pa

from spark_queue.client.coordinator_client import CoordinatorClient, RowRanges
from spark_queue.core import commands, replies
from spark_queue.core.definitions import parsing
from spark_queue.core.records import Kind, Record
from spark_queue.journal.creation import create_journal
from spark_queue.journal.open import open_journal
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.journal.store import Store
from spark_queue.protocol import wire
from spark_queue.protocol.host import Report, StartOptions
from tests.integration.faulty_coordinator import Faults
from tests.records import detail_of
from tests.source_tree import ROOT

QUEUE = "WORK"
TOPIC = "ORDERS"

#: How long a test waits for something that must happen, in seconds.
DEADLINE_S = 60.0


class World:
    """One journal, with every process that ever served it."""

    def __init__(
        self,
        path: Path | str,
        *,
        storage_options: Mapping[str, str] | None = None,
        journal: dict[str, Any] | None = None,
        queue: dict[str, Any] | None = None,
        peers: dict[str, Any] | None = None,
        replication: dict[str, Any] | None = None,
    ) -> None:
        self.definitions: dict[str, Any] = {
            "journal": journal or {},
            "peers": peers or {},
            "replication": replication or {},
            "message_types": {"json": {"topics": [TOPIC]}},
            "queues": {QUEUE: {"underlying_topic": TOPIC, **(queue or {})}},
        }
        if "dead_letter_queue" in (queue or {}):
            self.definitions["queues"][self.definitions["queues"][QUEUE]["dead_letter_queue"]] = {"message_type": "json"}
        self.store = Store(str(path), storage_options or {})
        self.journal_id = create_journal(self.store, parsing.parse(self.definitions))
        self._started: list[subprocess.Popen[bytes]] = []
        self._numbers = itertools.count()

    def publish(self, rows: int) -> None:
        """Publish some messages in one commit."""
        values = [f'{{"n": {next(self._numbers)}}}' for _ in range(rows)]
        definitions = parsing.parse(self.definitions)
        plan = make_plan(self.store, definitions, message_type="json", topic=TOPIC, expires_after_ms=None)
        publish(plan, self.journal_id, definitions, pa.table({"value": values}))

    def client(self, **options: Any) -> CoordinatorClient:
        """Return a new caller."""
        return CoordinatorClient(self.store, self.journal_id, **options)

    def ping(self) -> wire.Pong:
        """Have a coordinator, and ask who it is."""
        reply = self.client().call(wire.Ping(journal=self.journal_id, request=request_id()), timeout_s=DEADLINE_S)
        assert isinstance(reply, wire.Pong)
        return reply

    def start(self, faults: Faults | None = None, *, within: Sequence[str] = (), **orders: Any) -> subprocess.Popen[bytes]:
        """Start a coordinator process, with something wrong or `within` another command; it has its orders, not its election."""
        module = ["spark_queue.coordinator"]
        if faults is not None:
            module = ["tests.integration.faulty_coordinator", msgspec.json.encode(faults).decode()]
        process = subprocess.Popen(
            [*within, sys.executable, "-m", *module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._started.append(process)
        assert process.stdin is not None
        options = dict(self.store.storage_options)
        with process.stdin as stdin:
            stdin.write(
                msgspec.json.encode(
                    StartOptions(path=self.store.path, storage_options=options, journal_id=self.journal_id, **orders)
                )
            )
        return process

    def report(self, process: subprocess.Popen[bytes]) -> Report:
        """Wait for what a started process reports."""
        assert process.stdout is not None
        return msgspec.json.decode(process.stdout.readline(), type=Report)

    def started(self, faults: Faults | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start a coordinator process and wait until it reigns."""
        process = self.start(faults, **options)
        report = self.report(process)
        assert report.address is not None, report
        assert detail_of(self.claims()[-1])["pid"] == process.pid
        return process

    def records(self) -> Sequence[Record]:
        """Read the whole control log, as anybody may."""
        return open_journal(self.store).records()

    def claims(self) -> list[Record]:
        """Return the claims of all reigns so far."""
        return [record for record in self.records() if record.kind == Kind.EPOCH_CLAIMED]

    def end(self) -> None:
        """Kill whatever still serves."""
        pids = {process.pid for process in self._started} | {int(detail_of(claim)["pid"]) for claim in self.claims()}
        # The owner of the store reigns for a moment in the process that runs the tests.
        for pid in pids - {os.getpid()}:
            # Process ids are used again: only what is still a coordinator is ours.
            with contextlib.suppress(psutil.Error):
                found = psutil.Process(pid)
                if any("coordinator" in argument for argument in found.cmdline()):
                    found.kill()
                    wait_for_end(pid)
        for process in self._started:
            process.kill()
            process.wait(DEADLINE_S)
            assert process.stdout is not None
            process.stdout.close()


#: Makes a world; options as for `World`.
MakeWorld = Callable[..., World]


class Planner:
    """What a stream's planner does, without Spark."""

    def __init__(self, world: World, subscription: str = "s", *, client: CoordinatorClient | None = None) -> None:
        self.client = client or world.client()
        self._common: dict[str, Any] = {"journal": world.journal_id, "queue": QUEUE, "subscription": subscription}
        drawn = self.client.call(commands.DrawIncarnation(request=request_id(), **self._common), timeout_s=DEADLINE_S)
        assert isinstance(drawn, replies.Drawn)
        self.incarnation = drawn.incarnation
        self.calls = 0
        self.lease = 0
        self.client.call(self.attach_request(), timeout_s=DEADLINE_S)

    def _planner(self) -> dict[str, Any]:
        self.calls += 1
        return {"request": request_id(), "incarnation": self.incarnation, "call": self.calls, **self._common}

    def attach_request(self) -> commands.Attach:
        """Make the next attach."""
        return commands.Attach(ack_mode="auto", max_backlog=100_000, **self._planner())

    def next_request(self, *, limit: int = 10, wait_ms: int = 0) -> commands.Next:
        """Make the next call for a lease."""
        return commands.Next(finished=self.lease, limit=limit, wait_ms=wait_ms, **self._planner())

    def next(self, *, limit: int = 10, wait_ms: int = 0) -> replies.Granted:
        """Prove the last lease and ask for the next."""
        granted = self.client.call(self.next_request(limit=limit, wait_ms=wait_ms), timeout_s=DEADLINE_S)
        assert isinstance(granted, replies.Granted)
        self.lease = granted.lease
        return granted

    def rows_request(self) -> commands.Rows:
        """Make the next call for the rows of the current lease."""
        return commands.Rows(lease=self.lease, **self._planner())

    def rows(self) -> RowRanges:
        """Ask for the rows of the current lease."""
        return self.client.rows(self.rows_request(), timeout_s=DEADLINE_S)

    def bookmarks(self) -> list[int]:
        """Return the bookmarks of the current lease."""
        return [
            first + row for piece in self.rows().pieces.to_pylist() for first in [piece["bookmark"]] for row in range(piece["rows"])
        ]

    def consume(self, *, limit: int = 10) -> list[int]:
        """Take leases until nothing is there, and give every bookmark received."""
        received: list[int] = []
        # What is kept for others that polled lately is free when their window ends.
        while (granted := self.next(limit=limit)).messages or granted.withheld:
            received += self.bookmarks() if granted.messages else []
        return received


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process as by `kill -STOP`, and let it go on afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_until_stopped(pid: int) -> None:
    """Wait until a process has stopped itself."""
    process = psutil.Process(pid)
    deadline_s = time.monotonic() + DEADLINE_S
    while process.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline_s, f"process {pid} is {process.status()}"
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(0.01)


def wait_for_end(pid: int) -> None:
    """Wait until a process is gone; one that only waits to be collected by its parent is."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(timeout=DEADLINE_S)


def request_id() -> str:
    """Return a new request id."""
    return uuid.uuid4().hex
