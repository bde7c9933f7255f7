"""The requests that a journal makes of an object store: counted by an S3 server, since each of them is paid for, and never timed.

Rates are per second of the coordinator's own clock, which renews its advertisement every `RENEWAL_S`. What comes seldom is added as
the code has it: the looks that a message type gets every ten minutes where nobody waits.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_queue import Journal
from spark_queue.journal.log_looks import UNAWAITED_MS
from spark_queue.journal.store import ADVERTISEMENT_KEY, CONTROL, Store
from spark_queue.journal.store_files import requests_made
from spark_queue.protocol.discovery import RENEWAL_S
from spark_queue.protocol.endpoint import LOCAL
from spark_queue.source.run_reporter import RunReporter
from tests.benchmarks.figure import Bench, Figure
from tests.benchmarks.journals import QUEUE, SUBSCRIPTION, kill, planner_of, serving
from tests.integration.s3_server import BUCKET, MotoServer, Requests, s3_server
from tests.unit.source.reading import stream

TYPES = 10

#: Renewals that are waited for: one minute.
_RENEWALS = 12

#: Batches of which the requests are counted, and messages of one.
_BATCHES = 50
_BATCH_MESSAGES = 10

_DEADLINE_S = 300.0


class _Stored:
    """A journal in the bucket, of so many message types, each with a topic and a queue."""

    def __init__(self, server: MotoServer, name: str, *, types: int = TYPES) -> None:
        self._server, self._name = server, f"{name}/"
        definitions: dict[str, Any] = {
            "journal": {"coordinator_idle": "1h"},
            "message_types": {f"t{number}": {"columns": "id BIGINT", "topics": [f"T{number}"]} for number in range(types)},
            "queues": {_queue(number): {"underlying_topic": f"T{number}"} for number in range(types)},
        }
        self.journal = Journal.create(f"s3://{BUCKET}/{name}", definitions, storage_options=server.options)
        self.store = Store(self.journal.path, server.options)

    def requests(self) -> Requests:
        """Return what was asked of it so far, with keys that begin at the journal."""
        found = self._server.requests()
        return Counter(
            {(kind, key[len(self._name) :]): count for (kind, key), count in found.items() if key.startswith(self._name)}
        )

    @contextmanager
    def served(self) -> Iterator[None]:
        """Have a coordinator."""
        pong = serving(self.store, self.journal.journal_id())
        try:
            yield
        finally:
            kill(pong)

    def renewals(self) -> int:
        return self.requests()["PUT", ADVERTISEMENT_KEY]

    def until_renewed(self, times: int) -> None:
        """Wait for some renewals of the advertisement."""
        end, deadline_s = self.renewals() + times, time.monotonic() + _DEADLINE_S
        while self.renewals() < end:
            assert time.monotonic() < deadline_s, "the coordinator renews nothing"
            threading.Event().wait(0.05)


def measure(bench: Bench) -> Iterator[Figure]:
    """Count an idle coordinator (0.5 requests a second), an idle topic stream (0.2), and a micro-batch (2 PUT and 4 GET)."""
    with s3_server() as server, ExitStack() as stack:
        assert isinstance(server, MotoServer)
        idle, waited, followed, alone = (_Stored(server, name) for name in ("idle", "waited", "followed", "alone"))
        for each in (idle, waited, followed):
            stack.enter_context(each.served())
        stack.enter_context(_again_and_again([_planning(waited, number) for number in range(TYPES)]))
        follows = _following(followed)
        stack.enter_context(_again_and_again([_following(alone)]))
        # Until the looks have become as few as they get.
        idle.until_renewed(2)
        stack.enter_context(_again_and_again([follows]))
        before = [each.requests() for each in (idle, waited, followed, alone)]
        own = Counter(requests_made())
        idle.until_renewed(_RENEWALS)
        found = [each.requests() - earlier for each, earlier in zip((idle, waited, followed, alone), before, strict=True)]
        own = Counter(requests_made()) - own
    span_s = _RENEWALS * RENEWAL_S
    # A look where nobody waits is one at the next entry, and a listing; two types are in every journal.
    seldom = 2 * (TYPES + 2) / (UNAWAITED_MS / 1_000)
    yield _rate("requests-idle", "idle coordinator of ten message types", found[0].total() / span_s + seldom, 0.5, found[0])
    what = "the same, while a stream waits on each of the ten"
    yield _rate("requests-waited", what, found[1].total() / span_s + 2 * seldom / (TYPES + 2), None, found[1])
    with_coordinator = (own.total() - found[3].total()) / span_s
    note = {(kind, ""): count for kind, count in (own - _kinds(found[3])).items()}
    yield _rate("requests-topic", "idle topic stream, its own, beside a coordinator", with_coordinator, 0.2, Counter(note))
    yield _rate("requests-topic-alone", "idle topic stream without a coordinator", found[3].total() / span_s, None, found[3])
    yield from _batches()


def _batches() -> Iterator[Figure]:
    """Count what micro-batches ask of the control log: a planner's calls, and with those of a batch function."""
    with s3_server() as server:
        assert isinstance(server, MotoServer)
        for runs, row, what in (
            (False, "requests-batch", "of a micro-batch: latestOffset, which proves and grants, and partitions"),
            (True, "requests-batch-fn", "of one with a batch function, which says that it begins and has ended"),
        ):
            stored = _Stored(server, row, types=1)
            stored.journal.publish([{"id": number} for number in range((_BATCHES + 1) * _BATCH_MESSAGES)], topic="T0")
            with stored.served():
                found = _kinds(_taken(stored, runs=runs))
            for kind, budget in (("PUT", 2), ("GET", 4)):
                note = f"{_BATCHES} batches of {_BATCH_MESSAGES} messages; requests under `control`, which are all but the renewals"
                yield Figure(
                    row=f"{row}-{kind.lower()}", what=f"{kind} {what}", value=found[kind] / _BATCHES, unit="requests",
                    budget=None if runs and kind == "GET" else budget, note=note,
                )  # fmt: skip


def _taken(stored: _Stored, *, runs: bool) -> Requests:
    """Take batches as Spark does, and return what they asked of the control log."""
    planner = planner_of(stored.store, stored.journal.journal_id(), queue=_queue(0))
    reporter = RunReporter(stored.store, endpoint=LOCAL, queue=_queue(0), subscription=SUBSCRIPTION)
    granted = planner.next(finished=0, limit=_BATCH_MESSAGES, wait_ms=1_000)
    before = stored.requests()
    for _ in range(_BATCHES):
        planner.rows(granted.lease)
        if runs:
            reporter.end(reporter.start().run)
        granted = planner.next(finished=granted.lease, limit=_BATCH_MESSAGES, wait_ms=1_000)
        assert granted.messages == _BATCH_MESSAGES
    found = stored.requests() - before
    return Counter({(kind, key): count for (kind, key), count in found.items() if key.startswith(CONTROL)})


def _planning(stored: _Stored, number: int) -> Callable[[], object]:
    """Return what Spark does with an idle stream of a queue, again and again."""
    planner = planner_of(stored.store, stored.journal.journal_id(), queue=_queue(number))
    return lambda: planner.next(finished=0, limit=1, wait_ms=1_000)


def _following(stored: _Stored) -> Callable[[], object]:
    """Return the same of a topic's stream."""
    options = {f"storage.{name}": value for name, value in stored.store.storage_options.items()}
    reader = stream(stored.journal, topic="T0", startingBookmark="earliest", **options)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    return lambda: reader.latestOffset(end, ReadAllAvailable())


@contextmanager
def _again_and_again(calls: list[Callable[[], object]]) -> Iterator[None]:
    ended = threading.Event()

    def repeat(call: Callable[[], object]) -> None:
        while not ended.is_set():
            call()

    threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _queue(number: int) -> str:
    return QUEUE if number == 0 else f"{QUEUE}{number}"


def _kinds(found: Requests) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for (kind, _), count in found.items():
        kinds[kind] += count
    return kinds


def _rate(row: str, what: str, value: float, budget: float | None, found: Requests) -> Figure:
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(_kinds(found).items())) or "none"
    note = f"counted in {_RENEWALS} renewals of {RENEWAL_S:g} s: {counted}"
    return Figure(row=row, what=what, value=value, unit="requests/s", budget=budget, note=note)
