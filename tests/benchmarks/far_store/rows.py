"""What a journal on a far object store costs: the time that it waits for the store, and the requests, which no other load changes.

The store answers a GET or LIST after 20 ms and a PUT after 30. *Waiting* is the time in which at least one request was under way.
Spark's own part is left out, see `tests/sparkless_stream.py`.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from spark_queue import Journal
from tests.benchmarks.far_store.server import FAR, FarServer, Request, between_commits, far_server, is_commit, kinds_of, waiting_s
from tests.benchmarks.figure import Bench, Figure, median, percentile, shown, spread
from tests.benchmarks.growth import OneWriter
from tests.benchmarks.journals import QUEUE, TOPIC, kill_serving, serving
from tests.benchmarks.latency import publish_small_commits
from tests.benchmarks.sinks import visible_ms_by_commit
from tests.integration.s3_server import BUCKET
from tests.sparkless_stream import SparklessStream

#: Messages of a batch, and batches of a run.
SIZES = (1_000, 10_000, 100_000)
_BATCHES = 8

_QUEUES = 10
_STREAMS = 10
_STREAM_BATCHES = 4

#: Commits of the control log that stand there when somebody looks.
_COMMITS = (10_000, 100_000)
#: The last of them, and how many of these are made before upkeep is waited for.
_SLOW_COMMITS, _AT_ONCE = 1_000, 100
_LOOKS = {"publish": "a publish of one row", "status": "`status` of a queue", "start": "a coordinator's start"}

#: How long an idle journal is counted, and how long it is idle before, in seconds.
_IDLE_S, _SETTLED_S = 30, 15

#: Publishes whose requests are told.
_TOLD = (1, 10, 50, 150)
_SMALL_COMMITS, _WARM_COMMITS, _PAUSE_MS = 60, 10, 1_500


def batches(bench: Bench) -> Iterator[Figure]:
    """Measure batches of three sizes into a table; the budgets are 400 ms, 12 PUT and 12 GET for one of 10,000."""
    for rows in SIZES:
        waits_ms, puts, gets, times_ms = [], [], [], []
        for run in range(bench.runs):
            with far_server(bench.place / f"{rows}-{run}") as server, _journal(server) as journal:
                with journal.publisher("bench") as publisher:
                    for first in range(0, (_BATCHES + 3) * rows, rows):
                        publisher.publish(_messages(first, rows), topic=TOPIC)
                stream = _stream(journal, 0, 0, rows)
                for _ in range(2):
                    stream.batch()
                found = _far(server, [stream], batches=_BATCHES)
                stream.end()
            per_batch = between_commits(found, "sink-0-0")
            waits_ms += [1e3 * waiting_s(each) for each in per_batch]
            puts.append(sum(kinds_of(each)["PUT"] for each in per_batch) / len(per_batch))
            gets.append(sum(map(_reads, per_batch)) / len(per_batch))
            times_ms.append(1e3 * median(stream.times_s[2:]))
        is_budgeted = rows == 10_000
        what = f"a batch of {rows:,} rows into a table on a far store, waiting"
        requests = f"{shown(median(puts))} PUT, {shown(median(gets))} GET, HEAD and LIST"
        note = f"{spread(waits_ms)}; {requests}, {shown(median(times_ms))} ms in all"
        budget = 400 if is_budgeted else None
        yield Figure(row=f"store-batch-{rows}", what=what, value=median(waits_ms), unit="ms", budget=budget, note=note)
        for kind, values in (("PUT", puts), ("GET", gets)):
            what = f"{kind}{', HEAD and LIST' if kind == 'GET' else ''} of such a batch"
            row, held = f"store-batch-{rows}-{kind.lower()}", 12 if is_budgeted else None
            yield Figure(row=row, what=what, value=median(values), unit="requests", budget=held, note=spread(values))


def publishing(bench: Bench) -> Iterator[Figure]:
    """Measure publishing one row by an open publisher (100 ms, 5 requests), and until its row is in a table (600 ms)."""
    times_ms: list[float] = []
    told: dict[int, Counter[str]] = {}
    with far_server(bench.place / "publisher") as server, _journal(server) as journal:
        with journal.publisher("bench") as publisher:
            server.wait(FAR)
            for number in range(1, max(_TOLD) + 1):
                server.forget()
                begun_s = time.perf_counter()
                publisher.publish(_messages(number, 1), topic=TOPIC)
                times_ms.append(1e3 * (time.perf_counter() - begun_s))
                if number in _TOLD:
                    told[number] = kinds_of(server.requests())
        server.forget()
        begun_s = time.perf_counter()
        Journal(journal.path, storage_options=server.options).publish(_messages(0, 1), topic=TOPIC)
        alone_ms, alone = 1e3 * (time.perf_counter() - begun_s), kinds_of(server.requests())
    note = "; ".join(f"publish {number}: {kinds_text(kinds)}" for number, kinds in told.items())
    what = "a publish of one row by an open publisher, until it returns, p50"
    yield Figure(row="store-publish", what=what, value=percentile(times_ms, 0.5), unit="ms", budget=100, note=spread(times_ms))
    what, last = f"requests of publish {max(_TOLD)} of a journal without a coordinator", told[max(_TOLD)].total()
    yield Figure(row="store-publish-requests", what=what, value=last, unit="requests", budget=5, note=note)
    what = f"the same by a journal that is opened for it, after {max(_TOLD)} others"
    note = f"{alone_ms:,.0f} ms; {kinds_text(alone)}"
    yield Figure(row="store-publish-new-requests", what=what, value=alone.total(), unit="requests", note=note)
    yield from _until_row(bench)


def _until_row(bench: Bench) -> Iterator[Figure]:
    place = bench.place / "until-row"
    with far_server(place) as server, _journal(server) as journal:
        journal.publish([{"value": json.dumps({"commit": -1, "sent_ms": 0})}], topic=TOPIC)
        stream = _stream(journal, 0, 0, 1_000)
        stream.batch()
        server.wait(FAR)
        with _again_and_again(stream):
            publish_small_commits(journal, commits=_SMALL_COMMITS, pause_ms=_PAUSE_MS)
            deadline_s, sink = time.monotonic() + 60, place / BUCKET / "sink-0-0"
            while not (found_ms := visible_ms_by_commit(sink)).keys() >= set(range(_SMALL_COMMITS)):
                assert time.monotonic() < deadline_s, "the rows did not come"
                threading.Event().wait(0.5)
        server.wait(dict.fromkeys(FAR, 0))
        stream.end()
    times_ms = [found_ms[commit] for commit in range(_WARM_COMMITS, _SMALL_COMMITS)]
    for share, budget in ((0.5, 600), (0.99, None)):
        name = f"p{share * 100:.0f}"
        what = f"publish until its row's commit in a table, without Spark's part, {name}"
        value = percentile(times_ms, share)
        yield Figure(row=f"store-row-{name}", what=what, value=value, unit="ms", budget=budget, note=spread(times_ms))


def streams(bench: Bench) -> Iterator[Figure]:
    """Measure ten queues with ten streams each on one coordinator; the budget is 15 batches a second."""
    rates, commits = [], []
    for run in range(bench.runs):
        with far_server(bench.place / f"run-{run}") as server, _journal(server, queues=_QUEUES) as journal:
            rows = 100
            with journal.publisher("bench") as publisher:
                for queue in range(_QUEUES):
                    for each in range((_STREAM_BATCHES + 2) * _STREAMS):
                        publisher.publish(_messages(each * rows, rows), topic=_topic(queue))
            taken = [_stream(journal, queue, number, rows) for queue in range(_QUEUES) for number in range(_STREAMS)]
            for stream in taken:
                stream.batch()
            begun_s = time.perf_counter()
            found = _far(server, taken, batches=_STREAM_BATCHES)
            took_s = time.perf_counter() - begun_s
            for stream in taken:
                stream.end()
        rates.append(_QUEUES * _STREAMS * _STREAM_BATCHES / took_s)
        commits.append(sum(is_commit(each, "control") for each in found) / took_s)
    note = f"{spread(rates)}; {shown(median(commits))} commits of the control log a second"
    what = f"{_QUEUES} queues with {_STREAMS} streams each into tables, one coordinator, without Spark's part"
    yield Figure(row="store-streams", what=what, value=median(rates), unit="batches/s", budget=15, at_least=True, note=note)


def looking(bench: Bench) -> Iterator[Figure]:
    """Measure a coordinator's start, `status` and a publish after 10,000 and 100,000 commits; the first start waits 3 s at most.

    The start after 100,000 has 500 requests at most.
    """
    for commits in _COMMITS:
        place = bench.place / f"{commits}"
        # The gateway serves what stands in its folder, and a local disk is filled in a hundredth of the time.
        writer = OneWriter(place / BUCKET / "journal", commits - _SLOW_COMMITS, further=_SLOW_COMMITS)
        for _ in range(_SLOW_COMMITS // _AT_ONCE):
            # On a store upkeep keeps pace with the commits.
            writer.commit(_AT_ONCE)
        journal_id = writer.journal_id
        with far_server(place) as server:
            journal = Journal(f"s3://{BUCKET}/journal", storage_options=server.options)
            server.wait(FAR)
            found = {
                "publish": requests_of(server, partial(journal.publish, _messages(0, 1), topic=TOPIC)),
                "status": requests_of(server, journal.queue(QUEUE).status),
                "start": requests_of(server, partial(serving, journal.store, journal_id)),
            }
            kill_serving(journal)
        for what, requests in found.items():
            note = f"{kinds_text(kinds_of(requests))}; {sum(each.answered_bytes for each in requests) / 1e6:,.1f} MB"
            row, about = f"store-{what}-{commits}", f"{_LOOKS[what]} after {commits:,} commits"
            held_s = 3 if (what, commits) == ("start", 10_000) else None
            yield Figure(row=row, what=f"{about}, waiting", value=waiting_s(requests), unit="s", budget=held_s, note=note)
            held = 500 if (what, commits) == ("start", 100_000) else None
            yield Figure(row=f"{row}-requests", what=about, value=len(requests), unit="requests", budget=held)


def idle(bench: Bench) -> Iterator[Figure]:
    """Measure what is asked while nothing comes: of a coordinator at which one stream waits (1.5 a second), and alone (0.5)."""
    with far_server(bench.place / "idle") as server, _journal(server) as journal:
        journal.publish(_messages(0, 1), topic=TOPIC)
        stream = _stream(journal, 0, 0, 1_000)
        stream.batch()
        # Its looks at the message log become rare.
        _wait_for_messages(stream, _SETTLED_S)
        waited = requests_of(server, partial(_wait_for_messages, stream, _IDLE_S))
        stream.end()
        alone = requests_of(server, partial(threading.Event().wait, _IDLE_S))
    for row, what, requests, budget in (
        ("store-waiting", "requests a second of a coordinator at which one stream waits", waited, 1.5),
        ("store-idle", "requests a second of a coordinator without callers", alone, 0.5),
    ):
        note = f"{_IDLE_S} s: {kinds_text(kinds_of(requests))}"
        yield Figure(row=row, what=what, value=len(requests) / _IDLE_S, unit="requests/s", budget=budget, note=note)


def _wait_for_messages(stream: SparklessStream, span_s: float) -> None:
    until_s = time.monotonic() + span_s
    while time.monotonic() < until_s:
        stream.batch()


@contextmanager
def _journal(server: FarServer, *, queues: int = 1) -> Iterator[Journal]:
    definitions: dict[str, Any] = {
        "journal": {"coordinator_idle": "1h"},
        "message_types": {"json": {"topics": [_topic(number) for number in range(queues)]}},
        "queues": {f"Q{number}": {"underlying_topic": _topic(number)} for number in range(queues)},
    }
    journal = Journal.create(f"s3://{BUCKET}/journal", definitions, storage_options=server.options)
    try:
        yield journal
    finally:
        server.wait(dict.fromkeys(FAR, 0))
        kill_serving(journal)


def _topic(number: int) -> str:
    return f"{TOPIC}{number}" if number else TOPIC


def _stream(journal: Journal, queue: int, number: int, rows: int) -> SparklessStream:
    return SparklessStream(
        journal.store, journal.journal_id(), queue=f"Q{queue}", subscription=f"s{number}", message_type="json",
        table=f"s3://{BUCKET}/sink-{queue}-{number}", rows=rows,
    )  # fmt: skip


def _messages(first: int, count: int) -> list[dict[str, str]]:
    return [{"value": json.dumps({"n": number})} for number in range(first, first + count)]


def _far(server: FarServer, taken: Sequence[SparklessStream], *, batches: int) -> list[Request]:
    """Let streams take batches of a far server, each in a thread; returns what the server was asked."""
    server.wait(FAR)
    server.forget()

    def take(stream: SparklessStream) -> None:
        for _ in range(batches):
            while not stream.batch():
                continue

    threads = [threading.Thread(target=take, args=(stream,)) for stream in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = server.requests()
    server.wait(dict.fromkeys(FAR, 0))
    return found


@contextmanager
def _again_and_again(stream: SparklessStream) -> Iterator[None]:
    ended = threading.Event()

    def take() -> None:
        while not ended.is_set():
            stream.batch()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def requests_of(server: FarServer, act: Callable[[], object]) -> list[Request]:
    server.forget()
    act()
    return server.requests()


def _reads(requests: Sequence[Request]) -> int:
    kinds = kinds_of(requests)
    return kinds["GET"] + kinds["HEAD"] + kinds["LIST"]


def kinds_text(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
