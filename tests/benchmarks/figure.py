"""What a benchmark yields: figures, each with the budget that it is held against."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


class NotMeasuredError(Exception):
    """This machine lacks what a benchmark needs; the others go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number."""

    #: Names the row in the report; a later run of the same name replaces it.
    row: str
    what: str
    value: float
    unit: str
    #: The budget in the same unit; None for a figure that only informs.
    budget: float | None = None
    #: Whether the budget is a floor instead of a ceiling.
    at_least: bool = False
    #: What else a reader must know: spread, the figure it was compared with, the method.
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the budget is met; None where there is none."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.at_least else self.value <= self.budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a benchmark is given."""

    #: An empty directory of its own, removed afterwards.
    place: Path
    #: How often to measure; the figure is the median.
    runs: int


#: A benchmark: gives its figures as it has them.
Measure = Callable[[Bench], Iterator[Figure]]


def median(values: Iterable[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all values do not exceed, such as 0.99."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float], unit: str = "") -> str:
    """Return how many runs there were, and their range, for a note."""
    return f"{len(values)} runs, {shown(min(values))} to {shown(max(values))}{f' {unit}' if unit else ''}"


def shown(value: float) -> str:
    """Return a number with three significant digits, or whole."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
