"""Order per key: messages of one key are leased oldest first and without a gap, to one lease at a time (DESIGN 8).

The messages of a key form a chain, oldest first, of numbers into arrays; so many of them join or leave at once, in any place,
that every step here is one on whole arrays. A message costs about 25 bytes, a key about 30.

Distinct keys as small numbers, so that the facts of each are an array.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import from_array, oldest, to_array

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


#: Messages that the search for followers of the oldest ones looks at first; each further step looks at four times as many.
_FIRST_WINDOW = 1 << 12


class OrderKeys:
    """The keys of a queue's messages, and the order in which they wait for each other.

    Attributes
    ----------
    behind : BitMap64
        Messages in the queue that may not begin a run: not the oldest of their key, or of a key of which a message is held.
        Messages without a key are never among them.
    held : BitMap64
        Messages with a key that are leased, or sent at most once and neither proven nor lapsed.
    """

    def __init__(self) -> None:
        self.behind = BitMap64()
        self.under_lease = BitMap64()
        self._keys = KeyNumbers()
        #: By key: the oldest and the youngest message in the queue, and how many are held.
        self._first = np.empty(0, dtype=np.int32)
        self._last = np.empty(0, dtype=np.int32)
        self._holding = np.empty(0, dtype=np.int32)
        #: In order of bookmarks: the message, its key's number, its neighbours of the same key, and whether it is in the queue.
        self._bookmarks = np.empty(0, dtype=np.int64)
        self._key = np.empty(0, dtype=np.int32)
        self._older = np.empty(0, dtype=np.int32)
        self._younger = np.empty(0, dtype=np.int32)
        self._present = np.empty(0, dtype=np.bool_)
        self._count = 0

    def joined(self, bookmarks: NDArray[np.int64], keys: NDArray[np.uint64]) -> OrderKeys:
        """Return the same with messages that come late or last, each at its place, with the hashes of their keys beside them."""
        known = self._bookmarks[: self._count]
        if not len(bookmarks) or not len(known) or bookmarks[0] > known[-1]:
            self.add(bookmarks, keys)
            return self
        bookmarks, keys = np.r_[known, bookmarks], np.r_[self._keys.hashes[self._key[: self._count]], keys]
        order, more = np.argsort(bookmarks), OrderKeys()
        more.add(bookmarks[order], keys[order])
        more.leave(from_array(known[~self._present[: self._count]]))
        more.hold(self.under_lease)
        return more

    def add(self, bookmarks: NDArray[np.int64], keys: NDArray[np.uint64]) -> None:
        """Let messages join, younger than all before, with the hashes of their keys beside them."""
        if not len(bookmarks):
            return
        first, self._count = self._count, self._count + len(bookmarks)
        self._make_room()
        added = slice(first, self._count)
        self._bookmarks[added] = bookmarks
        self._key[added] = self._keys.numbers(keys)
        self._first, self._last = (grown(each, len(self._keys)) for each in (self._first, self._last))
        self._holding = grown(self._holding, len(self._keys), filled_with=0)
        self._present[added] = True
        self._link(np.arange(first, self._count))

    def leave(self, rows: BitMap64) -> None:
        """Let messages leave the queue, held or not; one without a key, or that has left before, changes nothing."""
        slots = self._slots(rows)
        slots = slots[self._present[slots]]
        if not len(slots):
            return
        self._present[slots] = False
        self.behind -= rows
        self._count_held(self._slots(rows & self.under_lease), -1)
        self.under_lease -= rows
        slots = self._by_key(slots)
        # Neighbours that leave together are one run; those around it become neighbours.
        ends = self._younger[slots[:-1]] != slots[1:]
        firsts, lasts = slots[np.r_[True, ends]], slots[np.r_[ends, True]]
        older, younger = self._older[firsts], self._younger[lasts]
        self._younger[older[older != NONE]] = younger[older != NONE]
        self._older[younger[younger != NONE]] = older[younger != NONE]
        self._first[self._key[firsts[older == NONE]]] = younger[older == NONE]
        self._last[self._key[lasts[younger == NONE]]] = older[younger == NONE]
        keys = self._key[firsts]
        self._mark_oldest(keys[np.r_[True, keys[1:] != keys[:-1]]])

    def come_back(self, rows: BitMap64) -> None:
        """Let messages into the queue again, each at its place among those of its key."""
        slots = self._slots(rows)
        if not len(slots):
            return
        self._present[slots] = True
        touched = np.zeros(len(self._keys), dtype=np.bool_)
        touched[self._key[slots]] = True
        self._last[: len(touched)][touched] = NONE
        self._link(np.flatnonzero(touched[self._key[: self._count]] & self._present[: self._count]))

    def hold(self, rows: BitMap64) -> None:
        """Let a lease have messages: until they are released or leave, nobody else begins a run of their keys."""
        slots = self._slots(rows - self.under_lease)
        if len(slots):
            self.under_lease |= self._rows(slots)
            self._mark_oldest(self._count_held(slots, 1))

    def release(self, rows: BitMap64) -> None:
        """Let go of messages that were held, and that stay in the queue."""
        rows = rows & self.under_lease
        if rows:
            self.under_lease -= rows
            self._mark_oldest(self._count_held(self._slots(rows), -1))

    def runs(self, heads: BitMap64, rows: BitMap64, *, count: int, longest: int) -> BitMap64:
        """Return the `count` oldest of `heads` and of their followers in their keys without a gap; cost follows the rows found.

        Each of `heads` begins a run, or has no key; `longest` is the most messages of one key, 0 for no limit.
        """
        heads = oldest(heads, count)
        begun = self._slots(heads)
        if longest == 1 or not len(begun):
            return heads
        is_begun = np.zeros(len(self._keys), dtype=np.bool_)
        is_begun[self._key[begun]] = True
        # Behind as many as are wanted there is nothing to look for.
        until = self._count
        if len(heads) == count:
            until = int(np.searchsorted(self._bookmarks[:until], heads.max(), side="right"))
        start, width = int(begun[0]), max(_FIRST_WINDOW, min(count, self._count) * 5 // 4)
        while True:
            end = min(start + width, until)
            window = start + np.flatnonzero(is_begun[self._key[start:end]] & self._present[start:end])
            slots, unbroken, rank = self._chains(self._among(window, rows))
            chosen = unbroken if not longest else unbroken & (rank < longest)
            found = heads | self._rows(slots[chosen])
            ends = np.r_[rank[1:] == 0, True][: len(rank)] & (rank + 1 != longest)
            next_slots = self._younger[slots[chosen & ends]]
            goes_on = begun[-1] >= end or bool((next_slots >= end).any())
            if end == until or not goes_on or found.range_cardinality(0, int(self._bookmarks[end])) >= count:
                return oldest(found, count)
            width *= 4

    def together(self, rows: BitMap64, held: BitMap64) -> BitMap64:
        """Return those of `rows` that may be leased beside what their lease still holds: nothing else of their keys is ahead."""
        slots, unbroken, rank = self._chains(self._slots(rows | held))
        if not len(slots):
            return rows
        starts = np.flatnonzero(rank == 0)
        mine = np.add.reduceat(np.isin(self._bookmarks[slots], to_array(held)), starts, dtype=np.int64)
        is_free = np.repeat(self._holding[self._key[slots[starts]]] == mine, np.diff(np.r_[starts, len(slots)]))
        return rows - self._rows(slots[~(unbroken & is_free)])

    def followers(self, rows: BitMap64, among: BitMap64) -> BitMap64:
        """Return those of `among` that stand behind one of `rows` in their key."""
        leaders, others = self._slots(rows), self._slots(among)
        if not len(leaders):
            return BitMap64()
        keys, at = np.unique(self._key[leaders], return_index=True)
        nearest = np.minimum(np.searchsorted(keys, self._key[others]), len(keys) - 1)
        is_behind = (keys[nearest] == self._key[others]) & (leaders[at[nearest]] < others)
        return self._rows(others[is_behind])

    def keys_of(self, rows: BitMap64) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return those of `rows` that have a key, ascending, and its hash beside it."""
        slots = self._slots(rows)
        return self._bookmarks[slots], self._keys.hashes[self._key[slots]]

    def __len__(self) -> int:
        return self._count

    def kept(self, rows: BitMap64) -> OrderKeys:
        """Return the same without anything but `rows`, which hold all that is in the queue."""
        fewer, slots = OrderKeys(), self._slots(rows)
        bookmarks = self._bookmarks[slots]
        fewer.add(bookmarks, self._keys.hashes[self._key[slots]])
        fewer.leave(from_array(bookmarks[~self._present[slots]]))
        fewer.hold(self.under_lease)
        return fewer

    def _link(self, slots: Slots) -> None:
        """Put messages, ascending, behind the youngest of their keys."""
        slots = self._by_key(slots)
        keys = self._key[slots]
        ends = keys[1:] != keys[:-1]
        first, last = np.r_[True, ends], np.r_[ends, True]
        older, younger = np.r_[NONE, slots[:-1]], np.r_[slots[1:], NONE]
        older[first] = self._last[keys[first]]
        younger[last] = NONE
        self._older[slots], self._younger[slots] = older, younger
        followed = first & (older != NONE)
        self._younger[older[followed]] = slots[followed]
        self._last[keys[last]] = slots[last]
        self.behind |= self._rows(slots[older != NONE])
        self._first[keys[older == NONE]] = slots[older == NONE]
        self._mark_oldest(keys[older == NONE])

    def _mark_oldest(self, keys: NDArray[np.int32]) -> None:
        """Let the oldest messages of keys begin runs, where nothing of the key is held."""
        keys = keys[self._first[keys] != NONE]
        is_held = self._holding[keys] > 0
        self.behind |= self._rows(self._first[keys[is_held]])
        self.behind -= self._rows(self._first[keys[~is_held]])

    def _count_held(self, slots: Slots, change: int) -> NDArray[np.int32]:
        """Count messages of their keys as held, or no more; returns these keys."""
        keys, counts = np.unique(self._key[slots], return_counts=True)
        self._holding[keys] += change * counts
        return keys

    def _chains(self, slots: Slots) -> tuple[Slots, NDArray[np.bool_], Slots]:
        """Return places by key; whether each is the oldest of its key or follows it without a gap; and its number in its key."""
        slots = self._by_key(slots)
        if not len(slots):
            return slots, np.empty(0, dtype=np.bool_), slots
        follows = np.r_[False, self._younger[slots[:-1]] == slots[1:]]
        begins = np.r_[True, np.diff(self._key[slots]) != 0]
        numbers = np.arange(len(slots))
        starts = np.maximum.accumulate(np.where(begins, numbers, 0))
        broken = np.cumsum(np.where(begins, self._older[slots] != NONE, ~follows))
        before = np.where(starts > 0, broken[starts - 1], 0)
        return slots, broken == before, numbers - starts

    def _by_key(self, slots: Slots) -> Slots:
        """Order places by their keys, ascending within each."""
        # To sort whole numbers takes a fraction of the time of an argsort.
        return np.sort(self._key[slots].astype(np.int64) << 32 | slots) & 0xFFFFFFFF

    def _rows(self, slots: NDArray[np.signedinteger[Any]]) -> BitMap64:
        # Of ascending numbers a bitmap is made in a fraction of the time.
        return from_array(np.sort(self._bookmarks[slots]))

    def _among(self, slots: Slots, rows: BitMap64) -> Slots:
        """Return those of some ascending places whose messages are among `rows`."""
        bookmarks = self._bookmarks[slots]
        inside = to_array(from_array(bookmarks) & rows)
        return slots if len(inside) == len(slots) else slots[np.searchsorted(bookmarks, inside)]

    def _slots(self, rows: BitMap64) -> Slots:
        """Return the places of those of `rows` that have a key, ascending."""
        if not self._count or not rows:
            return np.empty(0, dtype=np.int64)
        known, wanted = self._bookmarks[: self._count], to_array(rows)
        ends = wanted[[0, -1]]
        first, last = np.searchsorted(known, ends).tolist()
        if last < self._count and last - first == ends[1] - ends[0] and np.array_equal(known[[first, last]], ends):
            # Where every message has a key, nothing has to be searched for.
            found: Slots = first + wanted - ends[0]
        else:
            found = np.minimum(np.searchsorted(known, wanted), self._count - 1)
            found = found[known[found] == wanted]
        return found

    def _make_room(self) -> None:
        self._bookmarks = grown(self._bookmarks, self._count)
        self._key, self._older, self._younger = (grown(each, self._count) for each in (self._key, self._older, self._younger))
        self._present = grown(self._present, self._count)
