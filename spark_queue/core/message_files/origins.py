"""Where the messages of a message type were first published: origin and origin bookmark, by which every instance knows a row.

Local bookmarks stay local (DESIGN 17). Rows that were pulled stand in stretches: adjacent here, and adjacent there. A message
that its publisher gave to several instances is one row with several names (DESIGN 17.3).

Sequences of named publishers: the signs that a message came here already by another instance (DESIGN 17.3).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.records import OriginRows, SequenceRange

#: Begins the name that a file without a publisher gets; nobody can choose such a name (R99).
_UNNAMED = "~"


def is_named(publisher: str) -> bool:
    """Return whether a publisher has chosen its name, so that its numbers mean the same on every instance."""
    return not publisher.startswith(_UNNAMED)


def overlap(one: Mapping[str, SequenceRange], other: Mapping[str, SequenceRange]) -> bool:
    """Return whether a publisher has numbers in both."""
    return any(name in other and first <= other[name][1] and other[name][0] <= last for name, (first, last) in one.items())


def joined(parts: Sequence[Mapping[str, SequenceRange]]) -> dict[str, SequenceRange]:
    """Return the first and last number of each publisher in any of some parts."""
    found: dict[str, SequenceRange] = {}
    for part in parts:
        for name, (first, last) in part.items():
            known_first, known_last = found.get(name, (first, last))
            found[name] = (min(first, known_first), max(last, known_last))
    return found


@dataclass(frozen=True, slots=True, order=True)
class _Stretch:
    """Adjacent rows that are adjacent at their origin, too."""

    #: Bookmark of the first of them where one looks from, and on the other side.
    first: int
    there: int
    length: int

    @property
    def until(self) -> int:
        return self.first + self.length


@dataclass(slots=True)
class _Translation:
    """Bookmarks of one side by those of the other."""

    stretches: list[_Stretch] = field(default_factory=list)

    def add(self, first: int, there: int, length: int) -> None:
        """Add a stretch; one that goes on where another ends becomes a part of that."""
        stretch = _Stretch(first, there, length)
        index = bisect_right(self.stretches, stretch)
        before = self.stretches[index - 1] if index else None
        if before is not None and before.until == first and before.there + before.length == there:
            self.stretches[index - 1] = _Stretch(before.first, before.there, before.length + length)
        else:
            self.stretches.insert(index, stretch)

    def overlapping(self, first: int, until: int) -> Iterator[_Stretch]:
        """Yield the stretches between two bookmarks, cut to them."""
        index = max(0, bisect_right(self.stretches, first, key=lambda each: each.first) - 1)
        while index < len(self.stretches) and self.stretches[index].first < until:
            stretch = self.stretches[index]
            low, high = max(first, stretch.first), min(until, stretch.until)
            if low < high:
                yield _Stretch(low, stretch.there + low - stretch.first, high - low)
            index += 1

    def known(self, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that are known."""
        stretches = self.overlapping(rows.min(), rows.max() + 1) if rows else ()
        return rows & to_bitmap([(stretch.first, stretch.until) for stretch in stretches])

    def of(self, rows: BitMap64) -> BitMap64:
        """Return the bookmarks on the other side of those of `rows` that are known."""
        parts = []
        for stretch in self.overlapping(rows.min(), rows.max() + 1) if rows else ():
            part = rows & to_bitmap([(stretch.first, stretch.until)])
            if part:
                parts.append(part.shift(stretch.there - stretch.first))
        return BitMap64.union(BitMap64(), *parts)


@dataclass(slots=True)
class Origins:
    """Which rows of other instances are here, and under which bookmarks."""

    #: Bookmarks at their origin of the messages that are here, by its UUID.
    held: dict[str, BitMap64] = field(default_factory=dict)
    #: Own bookmarks of pulled messages, by the UUID of their origin.
    pulled: dict[str, BitMap64] = field(default_factory=dict)
    #: The own bookmarks from which messages published here have another origin than before, and its UUID: the journal was restored.
    renewed: list[tuple[int, str]] = field(default_factory=list)
    #: The groups of instances that are in one of another name.
    groups: dict[str, str] = field(default_factory=dict)
    _to_here: dict[str, _Translation] = field(default_factory=dict)
    _to_there: dict[str, _Translation] = field(default_factory=dict)
    #: As `_to_there`, of the further names of rows that are here under another one, by the UUID of that origin.
    _named: dict[str, _Translation] = field(default_factory=dict)

    def add(self, first: int, origins: Iterable[OriginRows]) -> None:
        """Add the rows of a file; the first has bookmark `first` here."""
        for row, length, origin, bookmark in origins:
            here, there = [(first + row, first + row + length)], [(bookmark, bookmark + length)]
            # In place: copies would cost as much as all that is held.
            self.held.setdefault(origin, BitMap64()).update(to_bitmap(there))
            self.pulled.setdefault(origin, BitMap64()).update(to_bitmap(here))
            self._to_here.setdefault(origin, _Translation()).add(bookmark, first + row, length)
            self._to_there.setdefault(origin, _Translation()).add(first + row, bookmark, length)

    def add_names(self, names: Iterable[OriginRows]) -> None:
        """Add further names of rows that are here; each has the own bookmark in the place of a file's row."""
        for here, length, origin, bookmark in names:
            self.held.setdefault(origin, BitMap64()).update(to_bitmap([(bookmark, bookmark + length)]))
            self._to_here.setdefault(origin, _Translation()).add(bookmark, here, length)
            self._named.setdefault(origin, _Translation()).add(here, bookmark, length)

    def new_names(self, names: Iterable[OriginRows]) -> list[OriginRows]:
        """Return those of some further names that nothing here has yet, cut where a part of them is held."""
        found: list[OriginRows] = []
        for here, length, origin, bookmark in names:
            there = to_bitmap([(bookmark, bookmark + length)]) - self.held.get(origin, BitMap64())
            found += [(here + first - bookmark, until - first, origin, first) for first, until in to_ranges(there)]
        return found

    def named(self, rows: BitMap64) -> Iterator[tuple[str, BitMap64]]:
        """Yield those of `rows` that have a further name, by the UUID of that origin, as bookmarks of here."""
        for origin, known in self._named.items():
            part = known.known(rows)
            if part:
                yield origin, part

    def name_count(self, origin: str) -> int:
        """Return how many messages are here under another name than that of an origin, which they have, too."""
        return sum(stretch.length for stretch in self._named[origin].stretches) if origin in self._named else 0

    def holds(self, origins: Iterable[OriginRows]) -> bool:
        """Return whether any of some rows of other instances is here."""
        return any(
            self.held[origin].range_cardinality(bookmark, bookmark + length)
            for _, length, origin, bookmark in origins
            if origin in self.held
        )

    def own_parts(self, first: int, until: int, *, own: str) -> Iterator[tuple[str, int, int]]:
        """Yield the own origins of the messages published here between two bookmarks; `own` is the first of them."""
        starts = [(0, own), *self.renewed]
        for (start, origin), (end, _) in pairwise([*starts, (until, "")]):
            low, high = max(first, start), min(until, end)
            if low < high:
                yield origin, low, high

    def here(self, origin: str, rows: BitMap64) -> BitMap64:
        """Return the own bookmarks of rows of an origin, as far as they were pulled."""
        return self._to_here[origin].of(rows) if origin in self._to_here else BitMap64()

    def published_here(self, origin: str, rows: BitMap64, *, own: str, until: int) -> BitMap64:
        """Return those of the rows of an origin that were published here; entered messages end before bookmark `until`."""
        ranges = [(low, high) for each, low, high in self.own_parts(0, until, own=own) if each == origin]
        return self.not_pulled(rows & to_bitmap(ranges))

    def not_pulled(self, rows: BitMap64) -> BitMap64:
        """Return those of `rows` of here that were published here."""
        for pulled in self.pulled.values() if rows else ():
            rows = rows - pulled
        return rows

    def of(self, rows: BitMap64, *, own: str) -> Iterator[tuple[str, BitMap64]]:
        """Yield all names of `rows` of here by origin, as bookmarks there; `own` is the first origin of own messages."""
        found, left = dict[str, BitMap64](), rows
        for origin, pulled in self.pulled.items():
            part = left & pulled
            if part:
                left = left - part
                found[origin] = self._to_there[origin].of(part)
        for origin, low, high in self.own_parts(left.min(), left.max() + 1, own=own) if left else ():
            part = left & to_bitmap([(low, high)]) if self.renewed else left
            if part:
                # Of an earlier origin some may have been lost, and have come back.
                found[origin] = found[origin] | part if origin in found else part
        for origin, known in self._named.items():
            there = known.of(rows)
            if there:
                found[origin] = found.get(origin, BitMap64()) | there
        yield from found.items()

    def between(self, first: int, until: int, *, own: str) -> list[OriginRows]:
        """Return where the rows between two bookmarks of here were first published, in their order; rows count from `first`."""
        pulled = sorted(
            (stretch, origin) for origin, known in self._to_there.items() for stretch in known.overlapping(first, until)
        )
        found: list[OriginRows] = []
        at = first
        for stretch, origin in pulled:
            found += self._own_between(at, stretch.first, first, own)
            found.append((stretch.first - first, stretch.length, origin, stretch.there))
            at = stretch.until
        return [*found, *self._own_between(at, until, first, own)]

    def _own_between(self, low: int, high: int, first: int, own: str) -> list[OriginRows]:
        return [(start - first, end - start, origin, start) for origin, start, end in self.own_parts(low, high, own=own)]


@dataclass(slots=True)
class Membership:
    """The word of origins, once, on messages of a type for one replicated queue, wherever they are now (R129)."""

    #: Everything of which something was said.
    known: BitMap64 = field(default_factory=BitMap64)
    #: The messages in the queue, by their first owner, and the barriers there.
    members: dict[str, BitMap64] = field(default_factory=dict)
    barriers: BitMap64 = field(default_factory=BitMap64)

    def add(self, rows: BitMap64, *, owner: str | None, is_barrier: bool) -> None:
        """Record the membership of some messages; without an owner and no barriers they are not in the queue."""
        self.known |= rows
        if is_barrier:
            self.barriers |= rows
        elif owner is not None:
            self.members[owner] = self.members.get(owner, BitMap64()) | rows

    def outside(self, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that were said not to be in the queue."""
        return (rows & self.known) - BitMap64.union(self.barriers, *self.members.values())


@dataclass(frozen=True, slots=True)
class OriginNames:
    """Where messages were first published by the names of the instances, as sinks and people see it."""

    origins: Origins
    #: The own name.
    own: str
    #: The names of others, by the UUID of their journal.
    instances: Mapping[str, str]

    def between(self, first: int, until: int) -> list[tuple[int, str, int]]:
        """Return the stretches between two bookmarks, without a gap: the first bookmark here, the instance, the bookmark there."""
        return [
            (first + row, self.instances.get(origin, origin), there)
            for row, _, origin, there in self.origins.between(first, until, own=self.own)
        ]
