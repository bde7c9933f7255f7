"""The core alone, with expressions: finishing one lease and granting the next by filter, priority and order key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import from_array
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from tests.benchmarks.core import lease_s
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import MANY_MESSAGES

FILTER = "half"
LEVELS = 16

#: Leases of one run, of which the largest together take less than matches.
LEASES = 30
KEYS = 1_000_000


@dataclass(kw_only=True)
class DrawnTraits(TraitSource):
    """Facts of as many messages as there are bookmarks, drawn once; a segment's are its part of them."""

    rows: BitMap64
    matching: BitMap64
    priorities: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        bookmarks = np.arange(segment.first, segment.until)
        traits = EntryTraits(
            rows=self.rows, ranked=bookmarks[: len(self.priorities)], priorities=self.priorities,
            keyed=bookmarks[: len(self.keys)], keys=self.keys,
        )  # fmt: skip
        return {each.queue.name: traits for each in requests}

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: object = None
    ) -> BitMap64:
        return rows & self.matching


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure leases out of 10 million messages; the budgets with a filter and 16 levels are 5 M messages/s and 1 ms."""
    few = _drawn(priorities=_numbers(LEVELS))
    yield from _figures(bench, few, "select", "filter, 16 priority levels", {"priority": "p"}, budgets=(5, 1))
    many = _drawn(priorities=np.random.default_rng(3).permutation(MANY_MESSAGES).astype(np.uint64))
    yield from _figures(bench, many, "priorities", "filter, 10 M distinct priorities", {"priority": "p"})
    keyed = _drawn(keys=_numbers(KEYS) * np.uint64(0x9E3779B97F4A7C15))
    yield from _figures(bench, keyed, "order-key", "order_key of 1 M keys", {"order_key": "k"}, filter_sql=None)
    skewed = np.minimum(np.random.default_rng(2).zipf(1.3, MANY_MESSAGES), 200).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    yield from _figures(
        bench, _drawn(keys=skewed), "order-key-runs", "order_key of 200 skewed keys", {"order_key": "k"}, filter_sql=None
    )


def _figures(
    bench: Bench, traits: DrawnTraits, row: str, what: str, queue: dict[str, Any], *,
    filter_sql: str | None = FILTER, budgets: tuple[float | None, float | None] = (None, None),
) -> Iterator[Figure]:  # fmt: skip
    times_s = [_lease_s(100_000, traits, queue, filter_sql) for _ in range(bench.runs)]
    large = [100_000 / time_s / 1e6 for time_s in times_s]
    yield Figure(
        row=f"core-{row}-100000", what=f"core: grant + acknowledge 100,000 of 10 M waiting, {what}", value=median(large),
        unit="M msg/s", budget=budgets[0], at_least=True, note=f"{spread(large)}, each the median of {LEASES} leases",
    )  # fmt: skip
    small = [_lease_s(100, traits, queue, filter_sql) * 1e3 for _ in range(bench.runs)]
    yield Figure(
        row=f"core-{row}-100", what=f"core: grant + acknowledge 100 of 10 M waiting, {what}", value=median(small),
        unit="ms", budget=budgets[1], note=f"{spread(small)}, each the median of {LEASES} leases",
    )  # fmt: skip


def _lease_s(limit: int, traits: DrawnTraits, queue: dict[str, Any], filter_sql: str | None) -> float:
    return lease_s(limit, traits, queue=queue, filter_sql=filter_sql, leases=LEASES)


def _drawn(**columns: NDArray[np.uint64]) -> DrawnTraits:
    rows = BitMap64()
    rows.add_range(0, MANY_MESSAGES)
    half = from_array(np.flatnonzero(np.random.default_rng(1).random(MANY_MESSAGES) < 0.5))
    return DrawnTraits(rows=rows, matching=half, **columns)


def _numbers(below: int) -> NDArray[np.uint64]:
    return np.random.default_rng(2).integers(0, below, MANY_MESSAGES, dtype=np.uint64)
