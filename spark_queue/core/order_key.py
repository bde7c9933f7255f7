"""Order per key: of the messages of one key only the oldest that is in the queue may be leased (DESIGN 8).

The messages of a key form a chain, oldest first, of numbers into arrays; so many of them join or leave at once, in any place,
that every step here is one on whole arrays. A message costs about 25 bytes, a key about 20.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.numbers import from_array, to_array

_NONE = -1

Places: TypeAlias = NDArray[np.int64]

_Number = TypeVar("_Number", bound=np.generic)


class OrderKeys:
    """The keys of a queue's messages, and who waits behind whom.

    Attributes
    ----------
    behind : BitMap64
        Messages in the queue that are not the oldest of their key. What has no key is never among them.
    """

    def __init__(self) -> None:
        self.behind = BitMap64()
        self._keys = _Keys()
        #: Youngest message in the queue, by key.
        self._last = np.empty(0, dtype=np.int64)
        #: In order of bookmarks: the message, its key's number, its neighbours of the same key, and whether it is in the queue.
        self._bookmarks = np.empty(0, dtype=np.int64)
        self._key = np.empty(0, dtype=np.int32)
        self._older = np.empty(0, dtype=np.int32)
        self._younger = np.empty(0, dtype=np.int32)
        self._present = np.empty(0, dtype=np.bool_)
        self._count = 0

    def add(self, bookmarks: NDArray[np.int64], keys: NDArray[np.uint64]) -> None:
        """Let messages join, younger than all before, with the hashes of their keys beside them."""
        if not len(bookmarks):
            return
        first, self._count = self._count, self._count + len(bookmarks)
        self._make_room()
        added = slice(first, self._count)
        self._bookmarks[added] = bookmarks
        self._key[added] = self._keys.numbers(keys)
        self._last = _grown(self._last, len(self._keys))
        self._present[added] = True
        self._link(np.arange(first, self._count))

    def leave(self, rows: BitMap64) -> None:
        """Let messages leave the queue; what has no key, or has left before, changes nothing."""
        places = self._places(rows)
        places = places[self._present[places]]
        if not len(places):
            return
        self._present[places] = False
        self.behind -= rows
        places = places[np.argsort(self._key[places], kind="stable")]
        # Neighbours that leave together are one run; those around it become neighbours.
        ends = self._younger[places[:-1]] != places[1:]
        older = self._older[places[np.r_[True, ends]]]
        lasts = places[np.r_[ends, True]]
        younger = self._younger[lasts]
        self._younger[older[older != _NONE]] = younger[older != _NONE]
        self._older[younger[younger != _NONE]] = older[younger != _NONE]
        self._last[self._key[lasts[younger == _NONE]]] = older[younger == _NONE]
        self.behind -= from_array(self._bookmarks[younger[(younger != _NONE) & (older == _NONE)]])

    def come_back(self, rows: BitMap64) -> None:
        """Let messages into the queue again, each at its place among those of its key."""
        places = self._places(rows)
        if not len(places):
            return
        self._present[places] = True
        touched = np.zeros(len(self._keys), dtype=np.bool_)
        touched[self._key[places]] = True
        self._last[: len(touched)][touched] = _NONE
        self._link(np.flatnonzero(touched[self._key[: self._count]] & self._present[: self._count]))

    def blocked(self, leased: BitMap64) -> BitMap64:
        """Give the oldest messages of keys of which a younger one is leased: an older one came back meanwhile."""
        keys = self._key[self._places(leased & self.behind)]
        if not len(keys):
            return BitMap64()
        places = np.flatnonzero(np.isin(self._key[: self._count], keys) & self._present[: self._count])
        return from_array(self._bookmarks[places]) - self.behind

    def keys_of(self, rows: BitMap64) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Give those of `rows` that have a key, ascending, and its hash beside it."""
        places = self._places(rows)
        return self._bookmarks[places], self._keys.hashes[self._key[places]]

    def __len__(self) -> int:
        return self._count

    def kept(self, rows: BitMap64) -> OrderKeys:
        """Give the same without anything but `rows`, which hold all that is in the queue."""
        fewer, places = OrderKeys(), self._places(rows)
        bookmarks = self._bookmarks[places]
        fewer.add(bookmarks, self._keys.hashes[self._key[places]])
        fewer.leave(from_array(bookmarks[~self._present[places]]))
        return fewer

    def _link(self, places: Places) -> None:
        """Put messages, ascending, behind the youngest of their keys."""
        places = places[np.argsort(self._key[places], kind="stable")]
        keys = self._key[places]
        ends = keys[1:] != keys[:-1]
        first, last = np.r_[True, ends], np.r_[ends, True]
        older, younger = np.r_[_NONE, places[:-1]], np.r_[places[1:], _NONE]
        older[first] = self._last[keys[first]]
        younger[last] = _NONE
        self._older[places], self._younger[places] = older, younger
        followed = first & (older != _NONE)
        self._younger[older[followed]] = places[followed]
        self._last[keys[last]] = places[last]
        bookmarks = self._bookmarks[places]
        self.behind |= from_array(bookmarks[older != _NONE])
        self.behind -= from_array(bookmarks[older == _NONE])

    def _places(self, rows: BitMap64) -> Places:
        """Give the places of those of `rows` that have a key, ascending."""
        if not self._count or not rows:
            return np.empty(0, dtype=np.int64)
        known, wanted = self._bookmarks[: self._count], to_array(rows)
        places = np.minimum(np.searchsorted(known, wanted), self._count - 1)
        found: Places = places[known[places] == wanted]
        return found

    def _make_room(self) -> None:
        self._bookmarks = _grown(self._bookmarks, self._count)
        self._key, self._older, self._younger = (_grown(each, self._count) for each in (self._key, self._older, self._younger))
        self._present = _grown(self._present, self._count)


class _Keys:
    """Numbers of distinct keys, from 0: a hash table with open addressing, searched for many keys at once."""

    def __init__(self) -> None:
        self.hashes = np.empty(0, dtype=np.uint64)
        self._count = 0
        self._table = np.full(1024, _NONE, dtype=np.int32)

    def __len__(self) -> int:
        return self._count

    def numbers(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Give the number of each key; a new key gets the next one."""
        distinct, inverse = np.unique(hashes, return_inverse=True)
        numbers = self._find(distinct)
        new = np.flatnonzero(numbers == _NONE)
        numbers[new] = np.arange(self._count, self._count + len(new))
        self._count += len(new)
        self.hashes = _grown(self.hashes, self._count)
        self.hashes[numbers[new]] = distinct[new]
        if 2 * self._count > len(self._table):
            self._table = np.full(1 << (4 * self._count).bit_length(), _NONE, dtype=np.int32)
            self._insert(np.arange(self._count, dtype=np.int32))
        else:
            self._insert(numbers[new])
        return numbers[inverse]

    def _find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        found = np.full(len(hashes), _NONE, dtype=np.int32)
        if not self._count:
            return found
        slots, searched = self._slots(hashes), np.arange(len(hashes))
        while len(searched):
            there = self._table[slots]
            hit = (there != _NONE) & (self.hashes[there] == hashes[searched])
            found[searched[hit]] = there[hit]
            on = (there != _NONE) & ~hit
            slots, searched = self._next(slots[on]), searched[on]
        return found

    def _insert(self, numbers: NDArray[np.int32]) -> None:
        """Put new numbers into the table; where several want one slot, one gets it and the others go on."""
        slots = self._slots(self.hashes[numbers])
        while len(numbers):
            free = self._table[slots] == _NONE
            self._table[slots[free]] = numbers[free]
            on = self._table[slots] != numbers
            slots, numbers = self._next(slots[on]), numbers[on]

    def _slots(self, hashes: NDArray[np.uint64]) -> Places:
        # Multiplied, since neighbouring hashes must not crowd neighbouring slots.
        mixed = (hashes * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
        return (mixed & np.uint64(len(self._table) - 1)).astype(np.int64)

    def _next(self, slots: Places) -> Places:
        return (slots + 1) & (len(self._table) - 1)


def _grown(numbers: NDArray[_Number], count: int) -> NDArray[_Number]:
    """Give room for `count` numbers; what is new holds -1."""
    if count <= len(numbers):
        return numbers
    grown = np.full(max(1024, count + count // 4), _NONE).astype(numbers.dtype)
    grown[: len(numbers)] = numbers
    return grown
