"""The order of messages by priority: priorities as bitmaps, so that cost follows distinct values and ranges, not messages (R66).

While there are few distinct values, each has a bitmap of its own, and the search uses no more of the first ones than it
needs. Beyond that a value is kept as its binary digits, one bitmap per digit: at most 8 bytes for each message, and a search
that goes from the highest digit to the lowest, for any number of values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import from_array, oldest, to_array

#: Most distinct values that have a bitmap each.
LEVELS_MAX = 64

_DIGITS = 64

#: Bookmarks that the search for the oldest of a level looks at first; each further step looks at four times as many.
_FIRST_WINDOW = 1 << 17


class Priorities:
    """The priorities of a queue's messages; those without one rank below all others."""

    def __init__(self) -> None:
        #: Everything that has a priority.
        self.ranked = BitMap64()
        #: By value; empty once values are kept by digit.
        self._levels: dict[int, BitMap64] = {}
        #: ``_digits[i]`` holds the bookmarks with binary digit i set; empty while values have levels.
        self._digits: list[BitMap64] = []

    def add(self, bookmarks: NDArray[np.int64], priorities: NDArray[np.uint64]) -> None:
        """Add messages, each once, with their priorities beside them."""
        if not len(bookmarks):
            return
        self.ranked |= from_array(bookmarks)
        if not self._digits:
            # Of many values a sample tells so: sorting them all costs more than all that follows.
            if len(np.unique(priorities[: 4 * LEVELS_MAX])) <= LEVELS_MAX:
                values = np.unique(priorities)
                if len(self._levels.keys() | set(values.tolist())) <= LEVELS_MAX:
                    self._add_to_levels(values, bookmarks, priorities)
                    return
            self._use_digits()
        for digit in range(_DIGITS):
            chosen = bookmarks[(priorities >> np.uint64(digit)) & np.uint64(1) == 1]
            if len(chosen):
                self._digits[digit] |= from_array(chosen)

    def first(self, rows: BitMap64, count: int) -> BitMap64:
        """Return the `count` of `rows` that come first: by priority descending, the oldest first within one value."""
        if count >= len(rows):
            return rows.copy()
        taken = self._first_by_digits(rows & self.ranked, count) if self._digits else self._first_by_levels(rows, count)
        if len(taken) < count:
            # Where nothing has a priority, a copy of all that waits costs more than the rest of a small grant.
            taken |= oldest(rows - self.ranked if self.ranked else rows, count - len(taken))
        return taken

    def levels(self, rows: BitMap64) -> Iterator[BitMap64]:
        """Yield `rows` in parts of one priority each, the highest first and those without one last."""
        if self._digits:
            bookmarks, values = self.of(rows)
            order = np.argsort(~values, kind="stable")
            ends = np.flatnonzero(np.diff(values[order])) + 1
            yield from (from_array(level) for level in np.split(bookmarks[order], ends))
        else:
            yield from (rows & level for level in self._levels.values())
        yield rows - self.ranked

    def of(self, rows: BitMap64) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return those of `rows` that have a priority, ascending, and that priority beside it."""
        bookmarks = to_array(rows & self.ranked)
        values = np.zeros(len(bookmarks), dtype=np.uint64)
        for value, level in self._levels.items():
            values[np.searchsorted(bookmarks, to_array(level & rows))] = value
        for digit, members in enumerate(self._digits):
            values[np.searchsorted(bookmarks, to_array(members & rows))] |= np.uint64(1 << digit)
        return bookmarks, values

    def keep(self, rows: BitMap64) -> None:
        """Forget everything but `rows`."""
        self.ranked &= rows
        for members in (*self._levels.values(), *self._digits):
            members &= rows
        self._levels = {value: level for value, level in self._levels.items() if level}

    def _add_to_levels(self, values: NDArray[np.uint64], bookmarks: NDArray[np.int64], priorities: NDArray[np.uint64]) -> None:
        for value in values:
            level = from_array(bookmarks[priorities == value])
            known = self._levels.get(int(value))
            self._levels[int(value)] = level if known is None else known | level
        self._levels = dict(sorted(self._levels.items(), reverse=True))

    def _use_digits(self) -> None:
        self._digits = [BitMap64() for _ in range(_DIGITS)]
        for value, level in self._levels.items():
            for digit in range(_DIGITS):
                if value >> digit & 1:
                    self._digits[digit] |= level
        self._levels = {}

    def _first_by_levels(self, rows: BitMap64, count: int) -> BitMap64:
        taken = BitMap64()
        for level in self._levels.values():
            taken |= _oldest_common(rows, level, count - len(taken))
            if len(taken) == count:
                break
        return taken

    def _first_by_digits(self, rows: BitMap64, count: int) -> BitMap64:
        taken = BitMap64()
        for digit in reversed(self._digits):
            # A digit that none or all have parts nothing.
            if not 0 < len(digit) < len(self.ranked):
                continue
            higher = rows & digit
            if len(taken) + len(higher) > count:
                rows = higher
            elif higher:
                taken |= higher
                rows = rows - higher
        return taken | oldest(rows, count - len(taken))


def _oldest_common(rows: BitMap64, level: BitMap64, count: int) -> BitMap64:
    """Return the `count` oldest rows of both, looking no further than they are found."""
    found = BitMap64()
    if not rows or not level:
        return found
    start, end, width = max(rows.min(), level.min()), min(rows.max(), level.max()) + 1, _FIRST_WINDOW
    while start < end and len(found) < count:
        window = BitMap64()
        window.add_range(start, min(end, start + width))
        window &= level
        window &= rows
        found |= window
        start, width = start + width, width * 4
    return oldest(found, count)
