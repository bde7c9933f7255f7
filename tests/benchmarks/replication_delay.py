"""Two instances as their users have them, each with a coordinator: how late one knows what the other was given, and may have it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from spark_queue import Journal
from spark_queue.core.message_files.segment import from_record
from spark_queue.core.records import Kind
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import messages_key
from tests.benchmarks.figure import Bench, Figure, percentile, spread
from tests.benchmarks.journals import QUEUE, TOPIC, kill_serving, planner_of, serving
from tests.benchmarks.latency import COMMITS, PAUSE_MS, WARM_COMMITS, publish_small_commits

#: Commits that are asked for one after the other.
ASKED_COMMITS = 12


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure publish to visible (p50 1 s, p99 2.5 s), and request to delivery (p50 2.5 s), at a pull interval of 500 ms."""
    visible = [_visible_ms(bench.place / f"visible-{run}") for run in range(bench.runs)]
    everything = [each for run in visible for each in run]
    for share, budget_ms in ((0.5, 1_000), (0.99, 2_500)):
        of_runs = [percentile(run, share) for run in visible]
        yield Figure(
            row=f"replication-visible-p{share * 100:.0f}", what=f"publish to visible on the other instance, p{share * 100:.0f}",
            value=percentile(everything, share), unit="ms", budget=budget_ms,
            note=f"{spread(of_runs)}; a commit every {PAUSE_MS} ms",
        )  # fmt: skip
    delivered = [percentile(_delivered_ms(bench.place / f"asked-{run}"), 0.5) for run in range(bench.runs)]
    yield Figure(
        row="replication-request", what="transfer request to delivery, p50", value=percentile(delivered, 0.5), unit="ms",
        budget=2_500, note=f"{spread(delivered)}; {ASKED_COMMITS} requests a run",
    )  # fmt: skip


@contextmanager
def _journals(place: Path) -> Iterator[tuple[Journal, Journal]]:
    """Make two instances that pull each other, each with a coordinator that is killed in the end."""
    made = []
    for name, other in (("there", "here"), ("here", "there")):
        definitions = {
            "journal": {"instance": name, "coordinator_idle": "1h"},
            "message_types": {"json": {"topics": [TOPIC]}},
            "queues": {QUEUE: {"underlying_topic": TOPIC}},
            "peers": {other: {"journal": str(place / other), "topics": [TOPIC], "queues": [QUEUE], "pull_interval": "500ms"}},
        }
        made.append(Journal.create(str(place / name), definitions))
    for journal in made:
        # It stays, since it has peers.
        serving(journal.store, journal.journal_id())
    try:
        yield made[0], made[1]
    finally:
        for journal in made:
            kill_serving(journal)


def _visible_ms(place: Path) -> list[float]:
    """Return how long after its publish each commit had entered at the other instance, in milliseconds."""
    with _journals(place) as (there, here):
        publish_small_commits(there)
        times_ms: dict[int, float] = {}
        while len(times_ms) < COMMITS:
            for record in open_reader(here.store).records():
                if record.kind == Kind.ENTERED:
                    file = f"{here.store.path}/{messages_key('json')}/{from_record(record).path}"
                    for value in pq.read_table(file, columns=["value"]).column(0).to_pylist():
                        message = json.loads(str(value))
                        times_ms.setdefault(message["commit"], record.at_ms - message["sent_ms"])
        return [times_ms[commit] for commit in range(WARM_COMMITS, COMMITS)]


def _delivered_ms(place: Path) -> list[float]:
    """Return how long after it asked an instance was granted what the other gave away, in milliseconds."""
    with _journals(place) as (there, here):
        planner, lease = planner_of(here.store, here.journal_id()), 0
        for _ in range(ASKED_COMMITS):
            there.publish([{"value": "{}"}] * 10, topic=TOPIC)
            while (found := planner.next(finished=lease, limit=10, wait_ms=5_000).lease) == lease:
                continue
            lease = found
        records = open_reader(here.store).records()
        asked = [each.at_ms for each in records if each.kind == Kind.TRANSFER_REQUESTED and each.queue == QUEUE]
        granted = [each.at_ms for each in records if each.kind == Kind.GRANTED]
        return [grant - max(at for at in asked if at <= grant) for grant in granted]
