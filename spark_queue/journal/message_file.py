"""Columns of the messages of a segment, read from the file that holds them now (DESIGN 4: compaction puts many in one file).

From bookmarks to pieces of files: what executors must read for a lease (DESIGN 3.2).
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from obstore.exceptions import NotFoundError
from pyroaring import BitMap64

from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.order_key import OrderKeys
from spark_queue.core.bitmaps.ranges import to_array, to_ranges
from spark_queue.core.message_files.origins import OriginNames
from spark_queue.core.message_files.segment import Segment, stretches
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.schema import ORIGIN, schema_of
from spark_queue.journal.store import Store, messages_key

#: The path of a message file: a name in its table's folder, as all of ours are. What leads out of it may be another type's, or the
#: host's.
PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")

#: Most of a file that is in memory at once, where a row group alone is not more.
PIECE_ROWS = 131_072
PIECE_BYTES = 128 * 1024 * 1024


class MessageFiles:
    """Reads segments' columns; a merged file is read once for all the segments in it, asked for one after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The merged file that was read last, and its columns.
        self._last: tuple[str, pa.Table] = ("", pa.table({}))

    def read(self, segment: Segment, columns: Sequence[str] | None) -> pa.Table:
        """Return columns of the segment's rows, None for all; one that the file does not have is left out."""
        key = _key(self._store, segment)
        known, rows = self._last
        if known != key or columns is None or not set(columns) <= set(rows.column_names):
            with decoding(self._store, segment) as file:
                rows = file.read(columns=None if columns is None else _standing(file, columns))
        found = rows.slice(segment.first_row, segment.row_count)
        until = segment.first_row + segment.row_count
        if len(rows) < until or (len(rows) != until and not segment.merged):
            raise corrupt(self._store, segment, f"it has {len(rows)} rows instead of {until}.")
        self._last = (key, rows) if len(rows) > until else ("", pa.table({}))
        there = set(found.column_names)
        return found if columns is None else found.select([name for name in columns if name in there])

    def pieces(self, segment: Segment, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of the segment's rows part by part, so that a large file is never in memory as a whole.

        A file of its own comes by some row groups at once; a merged one, which compaction keeps small, as `read` gives it.
        """
        if segment.merged:
            yield self.read(segment, columns)
            return
        with decoding(self._store, segment) as file:
            self._check(segment, file)
            for groups in _pieces_of(file.metadata):
                yield file.read_row_groups(groups, columns=_standing(file, columns))

    def check(self, segment: Segment) -> None:
        """Look whether a file of its own has as many rows as it should; raises what `pieces` raises."""
        with decoding(self._store, segment) as file:
            self._check(segment, file)

    def _check(self, segment: Segment, file: pq.ParquetFile) -> None:
        if file.metadata.num_rows != segment.row_count:
            raise corrupt(self._store, segment, f"it has {file.metadata.num_rows} rows instead of {segment.row_count}.")


def _standing(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    there = set(file.schema_arrow.names)
    return [name for name in columns if name in there]


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with exactly the columns of a schema; one that their file does not have is NULL."""
    there = set(rows.column_names)
    columns: list[Any] = [
        rows.column(field.name).cast(field.type) if field.name in there else pa.nulls(len(rows), field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def _pieces_of(file: pq.FileMetaData) -> Iterator[list[int]]:
    """Yield the row groups of a file in pieces: evaluating an expression costs milliseconds, however few rows there are."""
    groups: list[int] = []
    rows = size_bytes = 0
    for number in range(file.num_row_groups):
        group = file.row_group(number)
        if groups and (rows + group.num_rows > PIECE_ROWS or size_bytes + group.total_byte_size > PIECE_BYTES):
            yield groups
            groups, rows, size_bytes = [], 0, 0
        groups.append(number)
        rows, size_bytes = rows + group.num_rows, size_bytes + group.total_byte_size
    if groups:
        yield groups


@contextmanager
def decoding(store: Store, segment: Segment) -> Iterator[pq.ParquetFile]:
    """Open the file in which a segment stands, and tell damage of it from a store that does not answer."""
    key = _key(store, segment)
    with store.failures(f"reading {key}"):
        try:
            yield pq.ParquetFile(store.open(key))
        except (FileNotFoundError, PermissionError, NotFoundError) as failure:
            path = store.messages_uri(segment.message_type)
            reason = store.reason(failure) if isinstance(failure, PermissionError) else "it is not there."
            raise JournalError("MESSAGE_FILE_MISSING", file=segment.path, path=path, reason=reason) from None
        except pa.ArrowException as failure:
            raise corrupt(store, segment, store.reason(failure)) from None
        except OSError as failure:
            # A disk or a network that fails has a number; what pyarrow cannot decode has none.
            if failure.errno is None:
                raise corrupt(store, segment, store.reason(failure)) from None
            raise


@contextmanager
def fitting(store: Store, segment: Segment) -> Iterator[None]:
    """Tell of a file whose columns are not those of its message type, whatever they make libraries raise."""
    try:
        yield
    except SparkQueueError:
        raise
    except Exception as raised:
        reason = f"its columns are not those of the message type ({type(raised).__name__}: {store.reason(raised)})."
        raise corrupt(store, segment, reason) from raised


def is_in_place(store: Store, key: str) -> bool:
    """Return whether what is at a key is a file of its folder, and no link to one elsewhere; also where there is nothing."""
    path = Path(store.uri(key))
    if not store.is_local or not os.path.lexists(path):
        return True
    # Where folders lie is up to whoever set the journal up.
    found, folder = os.path.realpath(path), os.path.realpath(path.parent)
    return os.path.isfile(found) and os.path.dirname(found) == folder  # noqa: PTH113, PTH120 - loops of links raise nothing.


def _key(store: Store, segment: Segment) -> str:
    """Return the key of the file in which a segment stands: a name in its table's folder, whoever wrote the log that names it."""
    key = f"{messages_key(segment.message_type)}/{segment.path}"
    if PATH.fullmatch(segment.path) is None or not is_in_place(store, key):
        raise corrupt(store, segment, "it is no file in the folder of its message type, or a link to one that is elsewhere.")
    return key


def corrupt(store: Store, segment: Segment, reason: str) -> JournalError:
    """Make MESSAGE_FILE_CORRUPT."""
    path = store.messages_uri(segment.message_type)
    return JournalError("MESSAGE_FILE_CORRUPT", file=segment.path, path=path, reason=reason)


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

    Parameters
    ----------
    segments : Sequence[Segment]
        All segments of the message type, oldest first.
    rows : BitMap64
        Entered bookmarks.
    delivered, cancelled : Counts
        Of the queue.
    is_barrier : bool
        Whether the rows are a barrier, whose counts are those of the subscription that it is given to.
    order_keys : OrderKeys or None
        Of the queue, where its order key matters.
    origins : OriginNames or None
        Of the message type, in a journal that is an instance.

    Returns
    -------
    pa.Table
        As `PIECES`, oldest first; with `ORIGIN` of the first row where `origins`, and with `KEYS` where
        `order_keys` are given and there are rows.
    """
    if not rows:
        return PIECES.empty_table()
    deliveries = _runs(delivered.split(rows))
    cancels = _runs(cancelled.split(rows))
    files = stretches(segments[_segment_at(segments, rows.min()) : _segment_at(segments, rows.max()) + 1])
    first = np.fromiter((file.first for file in files), dtype=np.int64, count=len(files))
    until = np.fromiter((file.until for file in files), dtype=np.int64, count=len(files))
    first_row = np.fromiter((file.first_row for file in files), dtype=np.int64, count=len(files))
    # A piece starts where a run of either count starts, or where a file starts inside a run.
    published = None if origins is None else _Published(origins, rows.min(), rows.max() + 1)
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
    if published is not None:
        for field, column in zip(ORIGIN, published.columns_of(starts), strict=True):
            pieces = pieces.append_column(field, column)
    return pieces if order_keys is None else pieces.append_column(KEYS, _keys(order_keys, rows, ends - starts))


def _keys(order_keys: OrderKeys, rows: BitMap64, lengths: _Bookmarks) -> pa.ListArray[Any]:
    """Return the keys of the rows of each piece."""
    keyed, hashes = order_keys.keys_of(rows)
    positions = np.searchsorted(to_array(rows), keyed)
    keys, is_keyless = np.zeros(len(rows), dtype=np.uint64), np.ones(len(rows), dtype=np.bool_)
    keys[positions], is_keyless[positions] = hashes, False
    offsets = np.r_[0, np.cumsum(lengths)].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(keys, mask=is_keyless), type=KEYS.type)


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
