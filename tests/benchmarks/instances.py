"""Instances to measure: journals on disk, each with its core and its entrance in this process, which pull when they are told."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.publisher import commit_staged, make_plan
from spark_queue.journal.staging import stage_file
from spark_queue.journal.store import messages_key
from tests.benchmarks.figure import Bench
from tests.benchmarks.journals import COMMIT_MESSAGES, QUEUE, TOPIC, counted
from tests.sites_on_disk import DiskInstance


class BenchInstance(DiskInstance):
    """One instance with a queue that it shares with its peers.

    Parameters
    ----------
    place : Path
        Where the journals of all instances are made.
    name : str
        Of the instance.
    peers : Sequence of str
        From whom it pulls.
    columns : str
        Of its messages; without, they are JSON.
    """

    def __init__(self, place: Path, name: str, peers: Sequence[str] = (), *, columns: str | None = None) -> None:
        self.name = name
        message_type: dict[str, Any] = {"topics": [TOPIC], **({} if columns is None else {"columns": columns})}
        definitions = {
            "journal": {"instance": name, "coordinator_idle": "1h"},
            "message_types": {"json" if columns is None else "order_line": message_type},
            "queues": {QUEUE: {"underlying_topic": TOPIC}},
            "peers": {each: {"journal": str(place / each), "topics": [TOPIC], "queues": [QUEUE]} for each in peers},
        }
        super().__init__(place / name, SystemClock(), definitions)

    def begin_s(self) -> float:
        """Fold the log as a coordinator that starts does; returns how long that took, in seconds."""
        began_s = time.perf_counter()
        self.begin()
        return time.perf_counter() - began_s

    def count(self, state: State) -> int:
        """Return how many messages are in a state."""
        return len(self.state.queues[QUEUE].rows[state])

    def publish_numbers(self, messages: int, *, enters: bool = True) -> None:
        """Publish the smallest messages, 100,000 in a commit, each a copy of one file: writing it is not what is measured."""
        now = self.state.definitions
        plan = make_plan(self.store, now, message_type="json", topic=TOPIC, expires_after_ms=None)
        numbers = pa.array(range(min(messages, COMMIT_MESSAGES)), pa.int64())
        rows = pa.table({"value": counted(numbers)}).to_batches()
        file = stage_file(plan, rows, now_ms=self.now_ms)
        assert file is not None
        folder = self.path / messages_key("json")
        for _ in range(0, messages, COMMIT_MESSAGES):
            copy = replace(file, path=f"{uuid.uuid4().hex}.parquet")
            shutil.copyfile(folder / file.path, folder / copy.path)
            commit_staged(plan, self.state.journal_id, now, [copy])
            if enters:
                self.enter()

    def pull_s(self, peer: str) -> float:
        """Take over what a peer has, as the puller's thread and the loop do together; returns how long it took, in seconds."""
        began_s = time.perf_counter()
        self.pull(peer)
        return time.perf_counter() - began_s


def pulls_s(bench: Bench, place: Path, peers: Sequence[str], messages: int, *, columns: str | None = None) -> list[float]:
    """Return how long a new instance takes to pull all messages of its peers, for each run, in seconds.

    The peers share their queue: only of a shared one a log says which messages are in it.
    """
    times_s = []
    for run in range(bench.runs):
        here = BenchInstance(place, f"here_{run}", peers, columns=columns)
        times_s.append(sum(here.pull_s(peer) for peer in peers))
        assert here.count(State.REMOTE) == messages
    return times_s
