"""Distinct keys as small numbers, so that what is known of each is an array."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

#: No number.
NONE = -1

Slots: TypeAlias = NDArray[np.int64]

_Number = TypeVar("_Number", bound=np.generic)


class KeyNumbers:
    """Numbers of distinct keys, from 0: a hash table with open addressing, searched for many keys at once."""

    def __init__(self) -> None:
        self.hashes = np.empty(0, dtype=np.uint64)
        self._count = 0
        self._table = np.full(1024, NONE, dtype=np.int32)

    def __len__(self) -> int:
        return self._count

    def numbers(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the number of each key; a new key gets the next one."""
        distinct, inverse = np.unique(hashes, return_inverse=True)
        numbers = self._find(distinct)
        new = np.flatnonzero(numbers == NONE)
        numbers[new] = np.arange(self._count, self._count + len(new))
        self._count += len(new)
        self.hashes = grown(self.hashes, self._count)
        self.hashes[numbers[new]] = distinct[new]
        if 2 * self._count > len(self._table):
            self._table = np.full(1 << (4 * self._count).bit_length(), NONE, dtype=np.int32)
            self._insert(np.arange(self._count, dtype=np.int32))
        else:
            self._insert(numbers[new])
        return numbers[inverse]

    def _find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        found = np.full(len(hashes), NONE, dtype=np.int32)
        if not self._count:
            return found
        slots, searched = self._slots(hashes), np.arange(len(hashes))
        while len(searched):
            there = self._table[slots]
            hit = (there != NONE) & (self.hashes[there] == hashes[searched])
            found[searched[hit]] = there[hit]
            on = (there != NONE) & ~hit
            slots, searched = self._next(slots[on]), searched[on]
        return found

    def _insert(self, numbers: NDArray[np.int32]) -> None:
        """Put new numbers into the table; where several want one slot, one gets it and the others go on."""
        slots = self._slots(self.hashes[numbers])
        while len(numbers):
            free = self._table[slots] == NONE
            self._table[slots[free]] = numbers[free]
            on = self._table[slots] != numbers
            slots, numbers = self._next(slots[on]), numbers[on]

    def _slots(self, hashes: NDArray[np.uint64]) -> Slots:
        # Multiplied, since neighbouring hashes must not crowd neighbouring slots.
        mixed = (hashes * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
        return (mixed & np.uint64(len(self._table) - 1)).astype(np.int64)

    def _next(self, slots: Slots) -> Slots:
        return (slots + 1) & (len(self._table) - 1)


def grown(numbers: NDArray[_Number], count: int, *, filled_with: int = NONE) -> NDArray[_Number]:
    """Return room for `count` numbers."""
    if count <= len(numbers):
        return numbers
    larger = np.full(max(1024, count + count // 4), filled_with).astype(numbers.dtype)
    larger[: len(numbers)] = numbers
    return larger
