"""A histogram: how often a value lay in which of some fixed ranges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts observations by size.

    Parameters
    ----------
    bounds : Sequence of float
        The upper bound of each bucket but the last, ascending; the last has none.

    Attributes
    ----------
    counts : list of int
        How many observations fell into each bucket.
    total : float
        The sum of all observations.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, as often as it was met."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> Histogram:
        """Return one that goes its own way from here."""
        other = Histogram(self.bounds)
        other.counts, other.total = list(self.counts), self.total
        return other

    def add(self, other: Histogram) -> None:
        """Take in what another one with the same buckets has counted."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
