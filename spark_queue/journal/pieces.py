"""From bookmarks to pieces of files: the reads of executors for a lease (DESIGN 3.2)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.order_key import OrderKeys
from spark_queue.core.bitmaps.priority import Priorities
from spark_queue.core.bitmaps.ranges import to_array, to_ranges
from spark_queue.core.message_files.origins import OriginNames
from spark_queue.core.message_files.segment import Segment, stretches
from spark_queue.core.replies import Place
from spark_queue.journal.file_columns import text_of
from spark_queue.journal.schema import ORIGIN, schema_of

_Bookmarks = NDArray[np.int64]

#: The columns of `RowRanges`.
PIECES = schema_of(
    pa.field("path", pa.string(), nullable=False),
    pa.field("first_row", pa.int64(), nullable=False),
    pa.field("rows", pa.int64(), nullable=False),
    pa.field("bookmark", pa.int64(), nullable=False),
    pa.field("delivery_count", pa.int32(), nullable=False),
    pa.field("cancel_count", pa.int32(), nullable=False),
    pa.field("is_barrier", pa.bool_(), nullable=False),
)

#: The column that pieces have beside where a table is followed: `FileColumns` as a text, NULL for a file of the journal.
COLUMNS = pa.field("columns", pa.string())

#: The column that pieces of a queue with an order key have beside: the hash of the key of each row, NULL where it has none.
KEYS = pa.field("keys", pa.list_(pa.field("key", pa.uint64())), nullable=False)


def cut_pieces(
    segments: Sequence[Segment],
    rows: BitMap64,
    delivered: Counts,
    cancelled: Counts,
    *,
    is_barrier: bool = False,
    order_keys: OrderKeys | None = None,
    origins: OriginNames | None = None,
) -> pa.Table:
    """Cut rows into pieces: each within one file, without a gap, with one count of deliveries and of cancels, and of one origin.

    Cost follows pieces, not rows.

    A barrier's counts are those of the subscription that it is given to.

    Returns
    -------
    pa.Table
        As `PIECES`, oldest first; with `ORIGIN` of the first row where `origins`, with `KEYS` where
        `order_keys` are given and there are rows, and with `COLUMNS` where a file of a followed table is among them.
    """
    if not rows:
        return PIECES.empty_table()
    deliveries, cancels = _runs(delivered.split(rows)), _runs(cancelled.split(rows))
    low, high = rows.min(), rows.max() + 1
    files = _files(segments, rows)
    first = np.fromiter((file.first for file in files), dtype=np.int64, count=len(files))
    until = np.fromiter((file.until for file in files), dtype=np.int64, count=len(files))
    first_row = np.fromiter((file.first_row for file in files), dtype=np.int64, count=len(files))
    # A piece starts where a run of either count starts, or where a file starts inside a run.
    published = None if origins is None else _Published(origins, low, high)
    starts = np.unique(np.concatenate([deliveries.first, cancels.first, first, *([] if published is None else [published.first])]))
    starts = starts[deliveries.cover(starts)]
    run, cancel_run, file = deliveries.at(starts), cancels.at(starts), np.searchsorted(first, starts, side="right") - 1
    ends = np.minimum(np.minimum(deliveries.until[run], cancels.until[cancel_run]), until[file])
    if published is not None:
        ends = np.minimum(ends, published.until_of(starts))
    columns = [
        pa.array([file.path for file in files], pa.string()).take(pa.array(file, pa.int64())),
        pa.array(starts - first[file] + first_row[file]),
        pa.array(ends - starts),
        pa.array(starts),
        pa.array(deliveries.count[run]),
        pa.array(cancels.count[cancel_run]),
        pa.repeat(pa.scalar(is_barrier), len(starts)),
    ]
    pieces = pa.Table.from_arrays(columns, schema=PIECES)
    texts = column_texts(files)
    if texts is not None:
        pieces = pieces.append_column(COLUMNS, texts.take(pa.array(file, pa.int64())))
    if published is not None:
        for field, column in zip(ORIGIN, published.columns_of(starts), strict=True):
            pieces = pieces.append_column(field, column)
    return pieces if order_keys is None else pieces.append_column(KEYS, _keys(order_keys, rows, ends - starts))


def cut_places(
    segments: Sequence[Segment],
    rows: BitMap64,
    delivered: Counts,
    cancelled: Counts,
    *,
    is_barrier: bool = False,
    order_keys: OrderKeys | None = None,
    priorities: Priorities | None = None,
) -> tuple[Place, ...]:
    """Cut the rows of a receiver's lease as `cut_pieces` does, but for their origins, and with their priorities if given."""
    if not rows:
        return ()
    places = _cut_places(segments, rows, delivered, cancelled, is_barrier=is_barrier, order_keys=order_keys)
    return places if priorities is None else tuple(_with_priorities(places, _of_rows(rows, *priorities.of(rows)).to_pylist()))


def _cut_places(
    segments: Sequence[Segment],
    rows: BitMap64,
    delivered: Counts,
    cancelled: Counts,
    *,
    is_barrier: bool,
    order_keys: OrderKeys | None,
) -> tuple[Place, ...]:
    files, low, count = _files(segments, rows), rows.min(), len(rows)
    deliveries, cancels = list(delivered.split(rows)), list(cancelled.split(rows))
    if len(files) == len(deliveries) == len(cancels) == 1 and rows.max() - low == count - 1:
        # Nearly every lease of a receiver with little in hand: arrays would take ten times as long as its decision.
        [file], [(delivery_count, _)], [(cancel_count, _)] = files, deliveries, cancels
        place = Place(
            path=file.path, first_row=file.first_row + low - file.first, rows=count, bookmark=low, delivery_count=delivery_count,
            cancel_count=cancel_count, is_barrier=is_barrier, columns=text_of(file),
            keys=None if order_keys is None else tuple(_keys(order_keys, rows, np.array([count])).flatten().to_pylist()),
        )  # fmt: skip
        return (place,)
    pieces = cut_pieces(segments, rows, delivered, cancelled, is_barrier=is_barrier, order_keys=order_keys)
    return tuple(Place(**piece) for piece in pieces.to_pylist())


def _with_priorities(places: Iterable[Place], priorities: Sequence[int | None]) -> Iterator[Place]:
    """Yield places with the priorities of their rows, which follow each other as the rows do."""
    start = 0
    for place in places:
        end = start + place.rows
        yield msgspec.structs.replace(place, priorities=tuple(priorities[start:end]))
        start = end


def _files(segments: Sequence[Segment], rows: BitMap64) -> Sequence[Segment]:
    """Return the files in which rows may stand."""
    return stretches(segments[_segment_at(segments, rows.min()) : _segment_at(segments, rows.max()) + 1])


def column_texts(files: Sequence[Segment]) -> pa.Array[Any] | None:
    """Return how the columns of each file are found, as texts; None where all are files of the journal."""
    if all(file.table is None for file in files):
        return None
    return pa.array(list(map(text_of, files)), COLUMNS.type)


def _keys(order_keys: OrderKeys, rows: BitMap64, lengths: _Bookmarks) -> pa.ListArray[Any]:
    """Return the keys of the rows of each piece."""
    offsets = np.r_[0, np.cumsum(lengths)].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), _of_rows(rows, *order_keys.keys_of(rows)), type=KEYS.type)


def _of_rows(rows: BitMap64, bookmarks: _Bookmarks, numbers: NDArray[np.uint64]) -> pa.Array[Any]:
    """Return a number for each of `rows`: the one that stands beside its bookmark, NULL where that is not among `bookmarks`."""
    positions = np.searchsorted(to_array(rows), bookmarks)
    found, is_absent = np.zeros(len(rows), dtype=np.uint64), np.ones(len(rows), dtype=np.bool_)
    found[positions], is_absent[positions] = numbers, False
    return pa.array(found, mask=is_absent)


class _Published:
    """Where the rows between two bookmarks were first published, as arrays of stretches without a gap."""

    def __init__(self, origins: OriginNames, start: int, end: int) -> None:
        stretches_of_origin = origins.between(start, end)
        self.first = np.array([first for first, _, _ in stretches_of_origin], dtype=np.int64)
        self._until = np.r_[self.first[1:], end]
        self._there = np.array([there for _, _, there in stretches_of_origin], dtype=np.int64)
        self._names = pa.array([name for _, name, _ in stretches_of_origin], pa.string())

    def until_of(self, starts: _Bookmarks) -> _Bookmarks:
        """Return the ends of the stretches in which bookmarks lie."""
        until: _Bookmarks = self._until[self._at(starts)]
        return until

    def columns_of(self, starts: _Bookmarks) -> tuple[Any, Any]:
        """Return the instances of bookmarks, and their bookmarks there."""
        at = self._at(starts)
        return self._names.take(pa.array(at)), pa.array(self._there[at] + starts - self.first[at])

    def _at(self, bookmarks: _Bookmarks) -> Any:
        return np.searchsorted(self.first, bookmarks, side="right") - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """Disjoint ascending runs of bookmarks, each with one count."""

    first: _Bookmarks
    until: _Bookmarks
    count: NDArray[np.int32]

    def at(self, bookmarks: _Bookmarks) -> NDArray[np.intp]:
        """Return the number of the last run that starts at or before each bookmark; -1 for none."""
        return np.searchsorted(self.first, bookmarks, side="right") - 1

    def cover(self, bookmarks: _Bookmarks) -> NDArray[np.bool_]:
        """Return which bookmarks lie in a run."""
        run = self.at(bookmarks)
        covered: NDArray[np.bool_] = (run >= 0) & (bookmarks < self.until[run])
        return covered


def _runs(parts: Iterable[tuple[int, BitMap64]]) -> _Runs:
    found = [(count, to_ranges(rows).edges) for count, rows in parts]
    first = np.concatenate([edges[0::2] for _, edges in found])
    until = np.concatenate([edges[1::2] for _, edges in found])
    count = np.concatenate([np.full(len(edges) // 2, count, dtype=np.int32) for count, edges in found])
    order = np.argsort(first)
    return _Runs(first=first[order], until=until[order], count=count[order])


def _segment_at(segments: Sequence[Segment], bookmark: int) -> int:
    return bisect_right(segments, bookmark, key=lambda segment: segment.first) - 1
