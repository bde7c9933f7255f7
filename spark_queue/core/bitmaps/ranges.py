"""Bookmarks as Roaring bitmaps, as half-open ranges and as arrays; cost follows ranges, not messages (DESIGN 3.1)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

#: Above every bookmark, and within the range of a bitmap's queries.
BOOKMARK_LIMIT = 2**63

#: Ranges of fewer messages than this on average become a bitmap by way of their messages, in one step.
_LONG = 16
#: Up to so many ranges become a bitmap one by one: arrays cost more for them than they bring.
_FEW = 32


class RangeArray(Sequence[tuple[int, int]]):
    """Half-open ranges, ascending and disjoint, as an array: a lease by priority may have one range for each message.

    Attributes
    ----------
    edges : NDArray of int64
        First row, row after the last, first row, and so on.
    """

    __slots__ = ("edges",)

    def __init__(self, edges: NDArray[np.int64]) -> None:
        self.edges = edges

    def __len__(self) -> int:
        return len(self.edges) // 2

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[int, int], ...]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, int] | tuple[tuple[int, int], ...]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        edges = self.edges.tolist()
        return zip(edges[::2], edges[1::2], strict=True)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RangeArray):
            return np.array_equal(self.edges, other.edges)
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def to_bitmap(ranges: Iterable[tuple[int, int]]) -> BitMap64:
    """Make a bitmap of half-open ranges."""
    if isinstance(ranges, RangeArray) and len(ranges) > _FEW:
        firsts, untils = ranges.edges[::2], ranges.edges[1::2]
        lengths = untils - firsts
        count = int(lengths.sum())
        if count < _LONG * len(lengths):
            return from_array(np.repeat(firsts - np.cumsum(lengths) + lengths, lengths) + np.arange(count))
    rows = BitMap64()
    for first, until in ranges:
        rows.add_range(first, until)
    return rows


def to_ranges(rows: BitMap64) -> RangeArray:
    """Return the ascending half-open ranges of a bitmap."""
    ends: Any = edges(rows).to_array()
    return RangeArray(np.frombuffer(ends, dtype=np.uint64).astype(np.int64))


def holds(ranges: Sequence[tuple[int, int]], row: int) -> bool:
    """Return whether a row lies in ascending half-open ranges."""
    ends = _ends(ranges)
    return bool(np.searchsorted(ends, row, side="right") % 2)


def count_rows(ranges: Sequence[tuple[int, int]]) -> int:
    """Count the rows in half-open ranges."""
    ends = _ends(ranges)
    return int((ends[1::2] - ends[::2]).sum())


def _ends(ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return ranges.edges if isinstance(ranges, RangeArray) else np.array(ranges, dtype=np.int64).reshape(-1)


def edges(rows: BitMap64) -> BitMap64:
    """Return the first row of each run, and the row after its last."""
    # A bitmap XOR itself shifted by one keeps exactly these.
    return rows ^ rows.shift(1)


def oldest(rows: BitMap64, count: int) -> BitMap64:
    """Return the `count` lowest rows, or all of them when there are fewer, as a new bitmap."""
    if count >= len(rows):
        return rows.copy()
    return rows[:count]


def below(rows: BitMap64, until: int) -> BitMap64:
    """Return the rows before bookmark `until`, as a new bitmap."""
    return oldest(rows, rows.range_cardinality(0, until))


def to_array(rows: BitMap64) -> NDArray[np.int64]:
    """Return the ascending bookmarks of a bitmap."""
    return np.frombuffer(rows.to_array(), dtype=np.uint64).astype(np.int64)


def from_array(bookmarks: NDArray[np.int64]) -> BitMap64:
    """Make a bitmap of bookmarks."""
    return BitMap64(array("Q", bookmarks.astype(np.uint64).tobytes()))
