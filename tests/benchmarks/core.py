"""The core alone: finishing one lease and granting the next, out of 10 million waiting messages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyroaring import BitMap64

from spark_queue.core import commands, folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from spark_queue.core.records import Kind
from spark_queue.core.replies import Granted
from spark_queue.core.state.journal_state import JournalState
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import MANY_MESSAGES, QUEUE, TOPIC
from tests.deciding import claim, started
from tests.records import record_of

#: Leases taken in one run; the run's figure is their median.
LEASES = 60

NOW_MS = 1_000_000


class EverythingEnters(TraitSource):
    """Facts of messages that all belong to every queue and never expire."""

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        return {each.queue.name: EntryTraits(rows=to_bitmap([(segment.first, segment.until)])) for each in requests}

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: object = None
    ) -> BitMap64:
        return BitMap64(rows)


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure large and small leases; the budgets are 50 M messages/s and 0.1 ms."""
    large = [100_000 / lease_s(100_000, EverythingEnters()) / 1e6 for _ in range(bench.runs)]
    yield Figure(
        row="core-fifo-100000", what="core: grant + acknowledge 100,000 of 10 M waiting, FIFO", value=median(large),
        unit="M msg/s", budget=50, at_least=True, note=f"{spread(large)}, each the median of {LEASES} leases",
    )  # fmt: skip
    small = [lease_s(100, EverythingEnters()) * 1e3 for _ in range(bench.runs)]
    yield Figure(
        row="core-fifo-100", what="core: grant + acknowledge 100 of 10 M waiting, FIFO", value=median(small),
        unit="ms", budget=0.1, note=f"{spread(small)}, each the median of {LEASES} leases",
    )  # fmt: skip


def lease_s(
    limit: int, traits: TraitSource, *, queue: Mapping[str, Any] | None = None, filter_sql: str | None = None, leases: int = LEASES,
    peer: str | None = None,
) -> float:  # fmt: skip
    """Return the median time of proving a lease and granting the next, in seconds.

    Parameters
    ----------
    queue : Mapping, optional
        Further keys of the queue.
    leases : int
        How many to take; every one must find `limit` messages.
    peer : str, optional
        With whom the queue is shared.
    """
    engine = engine_of(traits, queue or {}, peer=peer)
    planner = started(engine, QUEUE, "bench", max_backlog=100_000, filter_sql=filter_sql, now_ms=NOW_MS)
    times_s, finished = [], 0
    for call in range(leases):
        began_s = time.perf_counter()
        granted = engine.decide(commands.Next(**planner, call=2 + call, finished=finished, limit=limit), now_ms=NOW_MS)
        engine.drain_records()
        times_s.append(time.perf_counter() - began_s)
        assert isinstance(granted, Granted)
        assert granted.messages == limit
        finished = granted.lease
    return median(times_s[1:])


def engine_of(
    traits: TraitSource, queue: Mapping[str, Any], *, until: int = MANY_MESSAGES, queues: int = 1, peer: str | None = None
) -> Engine:
    """Return an engine whose messages have entered.

    Parameters
    ----------
    queue : Mapping
        Further keys of every queue.
    until : int
        Bookmark after the last message.
    queues : int
        How many queues there are over the one topic; the first is `QUEUE`.
    peer : str, optional
        With whom they are shared.
    """
    state = JournalState(traits)
    folds.fold(state, record_of(kind=Kind.JOURNAL_CREATED, record=0, detail={"journal": "bench", "format": 1}))
    engine = Engine(state)
    claim(engine, epoch=1, host="here", address="memory", pid=1, now_ms=NOW_MS)
    names = [QUEUE, *(f"{QUEUE}_{number}" for number in range(1, queues))]
    tables = {name: {"underlying_topic": TOPIC, **queue} for name in names}
    definitions: dict[str, Any] = {"message_types": {"json": {"topics": [TOPIC]}}, "queues": tables}
    if peer is not None:
        definitions["journal"] = {"instance": "here"}
        definitions["peers"] = {peer: {"journal": f"/{peer}", "topics": [TOPIC], "queues": names}}
    engine.decide(commands.Apply(definitions=definitions), now_ms=NOW_MS)
    segment = Segment(
        message_type="json", first=0, until=until, path="one", version=1, token="t", entered_at_ms=NOW_MS, published_at_ms=NOW_MS,
        topic_min=TOPIC, topic_max=TOPIC, expires_null_count=until,
    )  # fmt: skip
    engine.enter([segment], now_ms=NOW_MS)
    return engine
