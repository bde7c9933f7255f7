"""A number for each bookmark, as one bitmap for each binary digit: how many numbers there are costs nothing (DESIGN 17.4).

How often each message was delivered or cancelled: counts that bitmaps hold by their binary digits (DESIGN 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyroaring import BitMap64


@dataclass(slots=True)
class BitSlicedInts:
    """A number per bookmark, 0 at first; bookmark b has a binary digit when the bitmap of that digit holds it."""

    #: The lowest digit first; some bookmark has the highest.
    _digits: list[BitMap64] = field(default_factory=list)

    @property
    def all_zero(self) -> bool:
        """Whether no bookmark has any other number."""
        return not self._digits

    def set(self, rows: BitMap64, number: int) -> None:
        """Give a number to each of `rows`."""
        if number and rows:
            self._digits += (BitMap64() for _ in range(number.bit_length() - len(self._digits)))
        for place, digit in enumerate(self._digits):
            if number >> place & 1:
                digit.update(rows)
            else:
                digit.difference_update(rows)
        self._trim()

    def split(self, rows: BitMap64) -> Iterator[tuple[int, BitMap64]]:
        """Yield `rows` in parts of equal number, lowest number first; empty parts are left out."""
        # Number so far, its next digit, and the bookmarks that have it: the lowest one on top.
        waiting = [(0, len(self._digits), rows)] if rows else []
        while waiting:
            number, place, part = waiting.pop()
            if place == 0:
                yield number, part
                continue
            above = part & self._digits[place - 1]
            if above:
                waiting.append((number | 1 << place - 1, place - 1, above))
            if len(above) < len(part):
                # Mostly none has the digit, and a copy of ten million messages costs more than the rest.
                waiting.append((number, place - 1, part - above if above else part))

    def compare(self, rows: BitMap64, number: int) -> tuple[BitMap64, BitMap64]:
        """Return those of `rows` whose number is less, and those whose number is this one."""
        less, equal = BitMap64(), rows
        if number.bit_length() > len(self._digits):
            return rows, less
        for place in reversed(range(len(self._digits))):
            above = equal & self._digits[place]
            if number >> place & 1:
                less |= equal - above
                equal = above
            else:
                equal = equal - above
        return less, equal

    def largest(self, rows: BitMap64) -> int:
        """Return the largest number of `rows`; 0 of none."""
        largest = 0
        for place in reversed(range(len(self._digits))):
            above = rows & self._digits[place]
            if above:
                rows, largest = above, largest | 1 << place
        return largest

    def _trim(self) -> None:
        while self._digits and not self._digits[-1]:
            self._digits.pop()


class Counts(BitSlicedInts):
    """A count per bookmark; the cost of a step does not follow their height."""

    __slots__ = ()

    def increment(self, rows: BitMap64) -> None:
        """Count each of `rows` once more."""
        for digit in self._digits:
            carried = rows & digit
            digit.symmetric_difference_update(rows)
            rows = carried
            if not rows:
                return
        if rows:
            self._digits.append(rows.copy())

    def decrement(self, rows: BitMap64) -> None:
        """Count each of `rows` once less; a count of zero stays."""
        rows = self.at_least(1, rows)
        for digit in self._digits if rows else ():
            borrowing = rows - digit
            digit.symmetric_difference_update(rows)
            rows = borrowing
            if not rows:
                break
        self._trim()

    def forget(self, rows: BitMap64) -> None:
        """Set the count of each of `rows` to zero."""
        self.set(rows, 0)

    def raise_to(self, count: int, rows: BitMap64) -> None:
        """Let the count of each of `rows` be at least `count`."""
        if count:
            self.set(rows - self.at_least(count, rows), count)

    def of(self, bookmark: int) -> int:
        """Return the count of one bookmark."""
        return sum(1 << place for place, digit in enumerate(self._digits) if bookmark in digit)

    def at_least(self, count: int, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that were counted at least `count` times (count from 1)."""
        reached = BitMap64()
        if count.bit_length() > len(self._digits):
            return reached
        # Mostly nothing was ever counted, so the uncounted are left out first.
        equal = rows & BitMap64.union(*self._digits)
        for place in reversed(range(len(self._digits))):
            above = equal & self._digits[place]
            if count >> place & 1:
                equal = above
            else:
                reached |= above
                equal = equal - above
        return reached | equal
