"""How often each message was delivered or cancelled: counts that bitmaps hold by their binary digits (DESIGN 5)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.numbers import Numbers


class Counts(Numbers):
    """A count per bookmark; what a step costs does not follow how high they are."""

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
        # What was never counted is mostly all there is, so it is left out first.
        equal = rows & BitMap64.union(*self._digits)
        for place in reversed(range(len(self._digits))):
            above = equal & self._digits[place]
            if count >> place & 1:
                equal = above
            else:
                reached |= above
                equal = equal - above
        return reached | equal
