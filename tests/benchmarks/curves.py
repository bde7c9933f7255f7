"""How the core's cost grows: with messages, ranges, subscriptions, queues and keys; a figure and a line in a picture for each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from spark_queue.core.replies import Granted
from tests.benchmarks.core import NOW_MS, engine_of
from tests.benchmarks.figure import Bench, Figure, median, shown
from tests.benchmarks.journals import QUEUE
from tests.deciding import started

PICTURE = Path(__file__).with_name("curves.svg")

_LIMIT = 1_000
_LEASES = 8


@dataclass(kw_only=True)
class _Facts(TraitSource):
    """Facts of messages that were never published."""

    rows: BitMap64
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        keyed = np.arange(len(self.keys))
        return {each.queue.name: EntryTraits(rows=self.rows, keyed=keyed, keys=self.keys) for each in requests}

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: object = None
    ) -> BitMap64:
        return rows


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """One thing that grows while all else stays."""

    of: str
    sizes: Sequence[int]
    #: Gives the time of one lease at a size, in milliseconds.
    measure: Callable[[int], float]


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure each curve; the budget is that cost grows no faster than what grows, as the slope between the two largest thirds."""
    curves = [
        _Curve(of="messages", sizes=(10_000, 100_000, 1_000_000, 10_000_000), measure=lambda size: _lease_ms(_whole(size))),
        _Curve(of="ranges", sizes=(100, 1_000, 10_000, 100_000, 1_000_000), measure=lambda size: _lease_ms(_torn(size))),
        _Curve(of="subscriptions", sizes=(1, 4, 16, 64), measure=lambda size: _lease_ms(_whole(1_000_000), subscriptions=size)),
        _Curve(of="queues", sizes=(1, 10, 100, 1_000), measure=lambda size: _lease_ms(_whole(100_000), queues=size)),
        _Curve(of="keys", sizes=(1_000, 10_000, 100_000, 1_000_000), measure=lambda size: _lease_ms(_keyed(size), order_key="k")),
    ]
    lines: dict[str, list[tuple[int, float]]] = {}
    for curve in curves:
        points = [(size, median(curve.measure(size) for _ in range(bench.runs))) for size in curve.sizes]
        lines[curve.of] = points
        yield growth(f"curve-{curve.of}", f"a lease of {_LIMIT:,} with the number of {curve.of}", points, unit="ms")
    draw(lines, PICTURE, ylabel=f"ms for a lease of {_LIMIT:,}")


def growth(row: str, what: str, points: Sequence[tuple[int, float]], *, unit: str, budget: float = 1.0) -> Figure:
    """Return how a time grows, as the slope between the two largest sizes where both are drawn by their logarithms."""
    (low, low_time), (high, high_time) = points[-2:]
    slope = math.log(high_time / low_time) / math.log(high / low)
    note = ", ".join(f"{size:,}: {shown(time)} {unit}" for size, time in points)
    return Figure(row=row, what=f"growth of {what}, as a power of it", value=slope, unit="", budget=budget, note=note)


def draw(lines: Mapping[str, Sequence[tuple[int, float]]], picture: Path, *, ylabel: str) -> None:
    """Draw curves into a file."""
    from matplotlib.figure import Figure as Picture

    drawn = Picture(figsize=(7, 4.5), layout="constrained")
    axes = drawn.subplots()
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="how many", ylabel=ylabel)
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend()
    drawn.savefig(picture, metadata={"Date": None})


def _lease_ms(traits: _Facts, *, subscriptions: int = 1, queues: int = 1, **keys: Any) -> float:
    """Return the median time of proving a lease and granting the next, in milliseconds."""
    engine = engine_of(traits, keys, until=traits.rows.max() + 1, queues=queues)
    names = [f"s{number}" for number in range(subscriptions)]
    planners = {name: started(engine, QUEUE, name, max_backlog=_LIMIT, now_ms=NOW_MS) for name in names}
    finished = dict.fromkeys(planners, 0)
    times_ms = []
    for call in range(2, 2 + max(3, _LEASES // subscriptions)):
        for name, planner in planners.items():
            began_s = time.perf_counter()
            granted = engine.decide(commands.Next(**planner, call=call, finished=finished[name], limit=_LIMIT), now_ms=NOW_MS)
            engine.drain_records()
            times_ms.append((time.perf_counter() - began_s) * 1e3)
            assert isinstance(granted, Granted)
            finished[name] = granted.lease
    return median(times_ms[1:])


def _whole(messages: int) -> _Facts:
    return _Facts(rows=to_bitmap([(0, messages)]))


def _torn(ranges: int) -> _Facts:
    """Return a million messages in as many ranges."""
    each = max(1, 1_000_000 // ranges)
    return _Facts(rows=to_bitmap([(2 * each * number, 2 * each * number + each) for number in range(ranges)]))


def _keyed(keys: int) -> _Facts:
    drawn = np.random.default_rng(1).integers(0, keys, 2_000_000, dtype=np.uint64)
    return _Facts(rows=to_bitmap([(0, len(drawn))]), keys=drawn)
