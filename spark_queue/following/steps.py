"""Numbers that change at moments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class StepSeries:
    """A number that changes at moments, and what it was at any of them."""

    def __init__(self) -> None:
        self._times_ms: list[int] = []
        self._values: list[int] = []
        self._arrays: tuple[Numbers, Numbers] | None = None

    def add(self, at_ms: int, change: int) -> None:
        """Let it change by so much."""
        self.put(at_ms, (self._values[-1] if self._values else 0) + change)

    def put(self, at_ms: int, value: int) -> None:
        """Let it be a value from a moment on; moments ascend."""
        if self._times_ms and self._times_ms[-1] == at_ms:
            self._values[-1] = value
        elif not self._values or self._values[-1] != value:
            self._times_ms.append(at_ms)
            self._values.append(value)
        else:
            return
        self._arrays = None

    @property
    def newest(self) -> tuple[int, int]:
        """How often it changed, and what it is now: another pair whenever it changed."""
        return len(self._times_ms), self._values[-1] if self._values else 0

    def at(self, times_ms: Numbers, *, before: int = 0) -> Numbers:
        """Return what it was at some moments; `before` holds before its first change."""
        if self._arrays is None:
            self._arrays = np.array(self._times_ms, np.int64), np.array([before, *self._values], np.int64)
        known_ms, values = self._arrays
        found: Numbers = values[np.searchsorted(known_ms, times_ms, side="right")]
        return found
