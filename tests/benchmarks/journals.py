"""Journals and coordinators to measure: real files on disk, real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from spark_queue import Journal, Queue
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.client.launcher import environment
from spark_queue.core.definitions import parsing
from spark_queue.errors import CoordinatorError
from spark_queue.journal.creation import create_journal
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.journal.store import Store
from spark_queue.protocol import wire
from spark_queue.protocol.host import Report, StartOptions
from spark_queue.settings.types import QueueStreamOptions
from spark_queue.source.planner import QueuePlanner

QUEUE = "WORK"
SUBSCRIPTION = "bench"
TOPIC = "ORDERS"

#: Messages of one commit of a large journal, and how many there are in all.
COMMIT_MESSAGES = 100_000
MANY_MESSAGES = 10_000_000

#: How many of so many `orders` match the filter of `SELECTIVE`.
SELECTED_MESSAGES = 3_333_333

#: Keys of a queue that must read every message: a filter on two fields, which a third of the messages match, and a priority.
SELECTIVE = {
    "filter": "CAST(get_json_object(value, '$.price') AS DOUBLE) > 100 AND get_json_object(value, '$.country') <> 'DE'",
    "priority": "get_json_object(value, '$.urgency')",
}

_DEADLINE_S = 120.0
_PING_PAUSE_S = 0.01


def counted(numbers: pa.Array[Any]) -> Any:
    """Return the smallest JSON messages, each with its number."""
    return _joined('{"n": ', numbers, "}")


def orders(numbers: pa.Array[Any]) -> Any:
    """Return JSON messages of a usual size, with the fields that `SELECTIVE` reads."""
    of = numbers.to_numpy()
    prices, urgencies = pa.array(of % 200), pa.array(of % 16)
    countries = pa.array(["DE", "US", "FR"]).take(pa.array(of % 3))
    rest = ', "text": "some more words of a usual message body"}'
    return _joined('{"id": ', numbers, ', "price": ', prices, '.5, "country": "', countries, '", "urgency": ', urgencies, rest)


def _joined(*parts: Any) -> Any:
    texts = [part.cast(pa.string()) if isinstance(part, pa.Array) else part for part in parts]
    return pc.binary_join_element_wise(*texts, "")  # type: ignore[call-overload]  # The stubs miss the scalar form.


class BenchJournal:
    """A journal of JSON messages with one queue.

    Parameters
    ----------
    path : Path
        Where it is made.
    messages : int
        How many to publish, 100,000 in a commit.
    queue : dict, optional
        Further keys of the queue; without, it is FIFO and reads no message.
    bodies : callable
        Gives the messages by their numbers.
    """

    def __init__(
        self, path: Path, *, messages: int = 0, queue: dict[str, Any] | None = None, bodies: Callable[[Any], Any] = counted
    ) -> None:
        self.definitions = definitions = parsing.parse(
            {
                # What is measured may wait for a coordinator's upkeep, which nobody calls meanwhile.
                "journal": {"coordinator_idle": "1h"},
                "message_types": {"json": {"topics": [TOPIC]}},
                "queues": {QUEUE: {"underlying_topic": TOPIC, **(queue or {})}},
            }
        )
        self.store = Store(str(path))
        self.journal_id = create_journal(self.store, definitions)
        plan = make_plan(self.store, definitions, message_type="json", topic=TOPIC, expires_after_ms=None)
        for first in range(0, messages, COMMIT_MESSAGES):
            numbers = pa.array(range(first, min(first + COMMIT_MESSAGES, messages)), pa.int64())
            publish(plan, self.journal_id, definitions, pa.table({"value": bodies(numbers)}))

    def client(self) -> CoordinatorClient:
        """Return a new caller, which starts a coordinator where none answers."""
        return CoordinatorClient(self.store, self.journal_id)

    def serving(self) -> wire.Pong:
        """Have a coordinator that serves, and tell who it is."""
        return serving(self.store, self.journal_id)

    def planner(self, *, subscription: str = SUBSCRIPTION, ack_mode: str = "auto", max_backlog: int = 100_000) -> QueuePlanner:
        """Take a subscription's seat; see `planner_of`."""
        return planner_of(self.store, self.journal_id, subscription=subscription, ack_mode=ack_mode, max_backlog=max_backlog)

    @contextmanager
    def coordinator(self, *module: str) -> Iterator[psutil.Process]:
        """Run a coordinator process, or a module in its place, until the end of the block; it serves when this is entered."""
        process = subprocess.Popen(
            [sys.executable, "-m", *(module or ("spark_queue.coordinator",))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            orders = StartOptions(path=self.store.path, storage_options={}, journal_id=self.journal_id, ends_idle=False)
            with process.stdin as stdin:
                stdin.write(msgspec.json.encode(orders))
            report = msgspec.json.decode(process.stdout.readline(), type=Report)
            assert report.address is not None, report
            assert self.serving().pid == process.pid
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_DEADLINE_S)
            finally:
                process.kill()
                process.stdout.close()


def serving(store: Store, journal_id: str) -> wire.Pong:
    """Have a coordinator of a journal that serves, and tell who it is."""
    client = CoordinatorClient(store, journal_id)
    try:
        while True:
            pong = client.call(wire.Ping(journal=journal_id, request=request()), timeout_s=_DEADLINE_S)
            assert isinstance(pong, wire.Pong)
            if not pong.recovering:
                return pong
            # Asking without a pause would take the time from the one that recovers.
            threading.Event().wait(_PING_PAUSE_S)
    finally:
        client.close()


def planner_of(
    store: Store,
    journal_id: str,
    *,
    queue: str = QUEUE,
    subscription: str = SUBSCRIPTION,
    ack_mode: str = "auto",
    max_backlog: int = 100_000,
) -> QueuePlanner:
    """Take a subscription's seat as a stream's planner does: the product's own code, without a JVM."""
    options = QueueStreamOptions(
        journal=store.path, storage=store.storage_options, coordinator=None, queue=queue, subscription=subscription,
        ack_mode=ack_mode, max_backlog=max_backlog, filter=None, columns=None, min_partitions=None,
    )  # fmt: skip
    return QueuePlanner(options, journal_id, columns=None, available_now=False)


def kill(pong: wire.Pong) -> None:
    """Kill the coordinator that answered."""
    process = psutil.Process(pong.pid)
    os.kill(pong.pid, signal.SIGKILL)
    process.wait(_DEADLINE_S)


#: A message of 200 bytes.
BODY = {"value": '"' + "x" * 198 + '"'}


@contextmanager
def serving_queue(place: Path, messages: int) -> Iterator[Queue]:
    """Yield a queue with messages, whose coordinator serves."""
    definitions = {"message_types": {"json": {"topics": [TOPIC]}}, "queues": {QUEUE: {"underlying_topic": TOPIC}}}
    journal = Journal.create(str(place), definitions)
    for first in range(0, messages, 10_000):
        journal.publish([BODY] * min(10_000, messages - first), topic=TOPIC)
    queue = journal.queue(QUEUE)
    queue.unpause()
    try:
        yield queue
    finally:
        kill_serving(journal)


def kill_serving(journal: Journal) -> None:
    """Kill the coordinator of a journal, if one serves."""
    client = CoordinatorClient(journal.store, journal.journal_id(), start=False)
    try:
        pong = client.call(wire.Ping(journal=journal.journal_id(), request=request()), timeout_s=1.0)
    except CoordinatorError:
        return
    finally:
        client.close()
    assert isinstance(pong, wire.Pong)
    kill(pong)


def request() -> str:
    """Return a new request id."""
    return uuid.uuid4().hex
