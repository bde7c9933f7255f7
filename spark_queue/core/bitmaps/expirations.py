"""When messages with an expiration of their own expire (R60); cost follows messages that are due, not those that wait.

A publisher with `expiresAfter` gives every commit a time of its own, so a queue may know as many times as it had commits
within that age.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence

from pyroaring import BitMap64


class Expirations(Mapping[int, BitMap64]):
    """Bookmarks by the time at which they expire, in milliseconds.

    Attributes
    ----------
    rows : BitMap64
        All of them.
    """

    def __init__(self) -> None:
        self.rows = BitMap64()
        self._by_time: dict[int, BitMap64] = {}
        #: The same times, ascending.
        self._times: list[int] = []

    def __getitem__(self, at_ms: int) -> BitMap64:
        return self._by_time[at_ms]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_time)

    def __len__(self) -> int:
        return len(self._by_time)

    def add(self, expires: Mapping[int, BitMap64]) -> None:
        """Add bookmarks, each once."""
        for at_ms, rows in expires.items():
            if at_ms in self._by_time:
                self._by_time[at_ms] |= rows
            else:
                insort(self._times, at_ms)
                self._by_time[at_ms] = rows.copy()
            self.rows |= rows

    def replace(self, rows: BitMap64, at_ms: int | None) -> None:
        """Let bookmarks expire at another time than before; None for never by a time of their own."""
        known = self._by_time.items() if self.rows.intersect(rows) else ()
        for known_ms in [known_ms for known_ms, members in known if members.intersect(rows)]:
            self._by_time[known_ms] -= rows
            self.rows -= rows
            if not self._by_time[known_ms]:
                self._drop([known_ms])
        if at_ms is not None and rows:
            self.add({at_ms: rows})

    def next_after(self, at_ms: int, *, gone: Sequence[BitMap64]) -> int | None:
        """Return the first time after `at_ms` of a bookmark that is in none of `gone`, which share none; None without one."""
        kept = self._kept_after(at_ms, gone)
        return self._times[kept] if kept < len(self._times) else None

    def forget_gone(self, at_ms: int, *, gone: Sequence[BitMap64]) -> None:
        """Forget the times from `at_ms` to that one, so that the caller does not look at them again and again."""
        self._drop(self._times[bisect_right(self._times, at_ms) : self._kept_after(at_ms, gone)])

    def _kept_after(self, at_ms: int, gone: Sequence[BitMap64]) -> int:
        index = bisect_right(self._times, at_ms)
        while index < len(self._times):
            rows = self._by_time[self._times[index]]
            if sum(rows.intersection_cardinality(each) for each in gone) < len(rows):
                break
            index += 1
        return index

    def first_of(self, parts: Sequence[BitMap64]) -> int | None:
        """Return the first time of a bookmark that is in one of the parts; None when there is none."""
        return next((at_ms for at_ms in self._times if any(self._by_time[at_ms].intersect(part) for part in parts)), None)

    def since(self, at_ms: int) -> BitMap64:
        """Return the bookmarks of later times than `at_ms`."""
        return BitMap64.union(BitMap64(), *(self._by_time[each] for each in self._times[bisect_right(self._times, at_ms) :]))

    def of(self, row: int) -> int | None:
        """Return the time of one bookmark; None where it has none."""
        return next((at_ms for at_ms in reversed(self._times) if row in self._by_time[at_ms]), None) if row in self.rows else None

    def overdue(self, now_ms: int) -> BitMap64:
        """Return the bookmarks that are past their time."""
        return BitMap64.union(BitMap64(), *(self._by_time[at_ms] for at_ms in self._until(now_ms)))

    def forget(self, now_ms: int, *, kept: BitMap64) -> None:
        """Forget the times that have come, but those of bookmarks in `kept`."""
        self._drop([at_ms for at_ms in self._until(now_ms) if not self._by_time[at_ms].intersect(kept)])

    def _until(self, now_ms: int) -> list[int]:
        return self._times[: bisect_right(self._times, now_ms)]

    def _drop(self, times: Sequence[int]) -> None:
        if times:
            self.rows -= BitMap64.union(*(self._by_time.pop(at_ms) for at_ms in times))
            self._times = [at_ms for at_ms in self._times if at_ms in self._by_time]
