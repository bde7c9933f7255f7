"""Which pulled messages their publishers have brought here already, by way of this instance or another one (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_queue.core.message_files.publishers import SequenceRange, is_named, overlap
from spark_queue.core.message_files.segment import Segment
from spark_queue.journal.layout import Store
from spark_queue.journal.message_file import MessageFiles, fitted
from spark_queue.replication.exchange import Standing

#: What a message says of its publishing rather than of itself: two publishes of the same may differ in it.
_OF_PUBLISHING = frozenset({"publisher", "sequence", "published_at", "expires_at"})

#: Most rows of one publisher and number that are compared at once; an honest peer has one for each instance.
_SAME_NUMBER_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What was found out about some pulled rows."""

    #: The own bookmark of the same message; -1 where it is not here.
    here: NDArray[np.int64]
    #: Whether another message of the publisher has that number here.
    clashing: NDArray[np.bool_]


def numbers_of(rows: pa.Table) -> dict[str, SequenceRange]:
    """Return the first and last sequence of each named publisher in stored rows."""
    publishers: Any = rows.column("publisher").unique().to_pylist()
    if not any(map(is_named, publishers)):
        return {}
    if len(publishers) == 1:
        found: Any = pc.min_max(rows.column("sequence")).as_py()
        return {publishers[0]: (found["min"], found["max"])}
    ends: Any = rows.group_by("publisher").aggregate([("sequence", "min"), ("sequence", "max")])
    columns = (ends.column(name).to_pylist() for name in ("publisher", "sequence_min", "sequence_max"))
    return {name: (low, high) for name, low, high in zip(*columns, strict=True) if is_named(name)}


class Repeats:
    """Finds pulled rows in the own journal by publisher and number, and compares only where ranges of numbers overlap."""

    def __init__(self, own: Store) -> None:
        self._files = MessageFiles(own)

    def compare(self, rows: pa.Table, numbers: Mapping[str, SequenceRange], standing: Standing) -> Compared:
        """Look for rows, which have the own columns.

        Parameters
        ----------
        numbers : Mapping of str to SequenceRange
            The first and last number of each named publisher among the rows.

        Raises
        ------
        JournalError
            MESSAGE_FILE_MISSING, MESSAGE_FILE_CORRUPT, STORE_FAILED, of the own journal.
        """
        found = Compared(here=np.full(len(rows), -1, dtype=np.int64), clashing=np.zeros(len(rows), dtype=np.bool_))
        low = {name: ends for name, ends in numbers.items() if ends[0] <= standing.highest.get(name, -1)}
        # What retention has let go can be compared with nothing, so such a message comes again.
        near = [each for each in standing.segments if not each.retired and overlap(low, each.publishers)] if low else []
        if near:
            places = _places(rows, low)
            for segment in near:
                self._compare(rows, places, segment, found)
            found.clashing[found.here >= 0] = False
        return found

    def _compare(self, rows: pa.Table, places: Mapping[tuple[str, int], list[int]], segment: Segment, found: Compared) -> None:
        bookmark, sequences = segment.first, [sequence for _, sequence in places]
        for piece in self._files.pieces(segment, rows.schema.names):
            near = np.flatnonzero(np.isin(piece.column("sequence").to_numpy(), sequences))
            keys = zip(near.tolist(), _keys(piece.take(near)), strict=True)
            pairs = [(row, number) for number, key in keys for row in places.get(key, ())]
            if pairs:
                pulled, standing = np.array(pairs, dtype=np.int64).T
                same = _same(rows.take(pulled), fitted(piece.take(standing), rows.schema))
                found.here[pulled[same]] = bookmark + standing[same]
                found.clashing[pulled[~same]] = True
            bookmark += len(piece)


def _places(rows: pa.Table, names: Mapping[str, SequenceRange]) -> dict[tuple[str, int], list[int]]:
    places: dict[tuple[str, int], list[int]] = {}
    for row, key in enumerate(_keys(rows)):
        if key[0] in names and len(places.setdefault(key, [])) < _SAME_NUMBER_MAX:
            places[key].append(row)
    return places


def _keys(rows: pa.Table) -> list[tuple[str, int]]:
    publishers: Any = rows.column("publisher").to_pylist()
    sequences: Any = rows.column("sequence").to_pylist()
    return list(zip(publishers, sequences, strict=True))


def _same(rows: pa.Table, others: pa.Table) -> NDArray[np.bool_]:
    """Return which rows have the same content: all that their publisher gave, but for how long they live."""
    same = np.ones(len(rows), dtype=np.bool_)
    for name in rows.schema.names:
        if name not in _OF_PUBLISHING and not rows.column(name).equals(others.column(name)):
            # As texts: two NaN are the same content, and values may be nested.
            pairs = zip(rows.column(name).to_pylist(), others.column(name).to_pylist(), strict=True)
            same &= np.array([repr(one) == repr(other) for one, other in pairs], dtype=np.bool_)
    return same
