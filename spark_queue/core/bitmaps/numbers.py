"""A number for each bookmark, as one bitmap for each binary digit: how many numbers there are costs nothing (DESIGN 17.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyroaring import BitMap64


@dataclass(slots=True)
class Numbers:
    """A number per bookmark, 0 at first; bookmark b has a binary digit when the bitmap of that digit holds it."""

    #: The lowest digit first; some bookmark has the highest.
    _digits: list[BitMap64] = field(default_factory=list)

    @property
    def all_zero(self) -> bool:
        """Whether no bookmark has any other number."""
        return not self._digits

    def set(self, rows: BitMap64, number: int) -> None:
        """Give a number to each of `rows`."""
        if rows:
            self._digits += (BitMap64() for _ in range(number.bit_length() - len(self._digits)))
        for place, digit in enumerate(self._digits):
            if number >> place & 1:
                digit.update(rows)
            else:
                digit.difference_update(rows)
        self._trim()

    def split(self, rows: BitMap64) -> Iterator[tuple[int, BitMap64]]:
        """Yield `rows` in parts of equal number, lowest number first; empty parts are left out."""
        # Number so far, its next digit, and who has it: the lowest one on top.
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
