"""How often each message was delivered or cancelled, as one bitmap per count (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap64


class Counts:
    """A count per bookmark; bookmark b has count k when exactly the first k levels hold it."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        # _levels[k] holds the bookmarks counted more than k times.
        self._levels: list[BitMap64] = []

    def increment(self, rows: BitMap64) -> None:
        """Count each of `rows` once more."""
        for level in self._levels:
            carried = rows & level
            level.update(rows)
            rows = carried
            if not rows:
                return
        if rows:
            self._levels.append(rows.copy())

    def decrement(self, rows: BitMap64) -> None:
        """Count each of `rows` once less; a count of zero stays."""
        for level in reversed(self._levels):
            taken = rows & level
            level.difference_update(taken)
            rows = rows - taken
            if not rows:
                return

    def forget(self, rows: BitMap64) -> None:
        """Set the count of each of `rows` to zero."""
        for level in self._levels:
            level.difference_update(rows)
        while self._levels and not self._levels[-1]:
            self._levels.pop()

    def set(self, bookmark: int, count: int) -> None:
        """Set the count of one bookmark."""
        rows = BitMap64([bookmark])
        self.forget(rows)
        for _ in range(count):
            self.increment(rows)

    def at_least(self, count: int, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that were counted at least `count` times (count from 1)."""
        return rows & self._levels[count - 1] if count <= len(self._levels) else BitMap64()

    def split(self, rows: BitMap64) -> Iterator[tuple[int, BitMap64]]:
        """Yield `rows` in parts of equal count, lowest count first; empty parts are left out."""
        for count, level in enumerate(self._levels):
            more = rows & level
            if len(more) < len(rows):
                yield count, rows - more
            rows = more
        if rows:
            yield len(self._levels), rows

    def of(self, bookmark: int) -> int:
        """Return the count of one bookmark."""
        return sum(bookmark in level for level in self._levels)

    def raise_to(self, count: int, rows: BitMap64) -> None:
        """Let the count of each of `rows` be at least `count`."""
        for level in range(count):
            if level == len(self._levels):
                self._levels.append(BitMap64())
            self._levels[level].update(rows)
