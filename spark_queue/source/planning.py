"""Cutting row ranges into partitions; runs where partitions are planned, never on executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_queue.source.partitions import FilePieces, MessagePartition, to_numpy

#: Most rows of a partition, give or take a quarter.
PARTITION_ROWS = 100_000

#: Handfuls of keys for each partition: so many keys, or so many parts of all keys, are spread one by one.
_HANDFULS = 64
_COLUMNS = ("first_row", "rows", "bookmark", "delivery_count", "cancel_count", "is_barrier")

#: Columns of which a piece has the value of its first row, and each later row one more.
_COUNTED = ("first_row", "bookmark", "origin_bookmark")
_Columns = dict[str, NDArray[Any]]


def cut(pieces: pa.Table, *, min_partitions: int | None, lease: int = 0, leased_until_ms: int = 0) -> list[MessagePartition]:
    """Cut pieces of `RowRanges` into even partitions that keep their order, and the rows of a key together.

    Without `min_partitions` they are as few as `PARTITION_ROWS` allows.
    """
    columns: _Columns = {name: to_numpy(pieces.column(name)) for name in _COLUMNS}
    if not len(columns["rows"]):
        return []
    names = pieces.column("path").combine_chunks().dictionary_encode()
    columns["path"] = to_numpy(names.indices)
    paths = [str(path) for path in names.dictionary.to_pylist()]
    texts: dict[str, str | None] = {}
    if "columns" in pieces.column_names:
        of_files: list[Any] = pieces.column("columns").to_pylist()
        texts = dict(zip(map(str, pieces.column("path").to_pylist()), of_files, strict=True))
    origins: tuple[str, ...] = ()
    if "origin" in pieces.column_names:
        instances = pieces.column("origin").combine_chunks().dictionary_encode()
        columns |= {"origin": to_numpy(instances.indices), "origin_bookmark": to_numpy(pieces.column("origin_bookmark"))}
        origins = tuple(map(str, instances.dictionary.to_pylist()))
    total = int(columns["rows"].sum())
    count = min(total, max(min_partitions or 1, -(-total // PARTITION_ROWS)))
    # A coordinator from before there were runs names no keys, and gives one row of each.
    keyed = count > 1 and "keys" in pieces.column_names
    shares = _shares_by_key(columns, pieces.column("keys"), count) if keyed else _shares(columns, count)
    return [
        MessagePartition(tuple(_by_file(share, paths, texts)), lease=lease, leased_until_ms=leased_until_ms, origins=origins)
        for share in shares
    ]


def _shares_by_key(columns: _Columns, keys_of_pieces: Any, count: int) -> Iterator[_Columns]:
    """Yield each key to one partition; small keys go by the handful, so that the large ones can be spread evenly."""
    keys, handfuls = keys_of_pieces.combine_chunks().flatten(), _HANDFULS * count
    rows = np.arange(len(keys))
    handful = np.where(to_numpy(keys.is_null()), rows % handfuls, to_numpy(keys) % np.uint64(handfuls)).astype(np.int64)
    sizes, loads, partition = np.bincount(handful, minlength=handfuls), np.zeros(count), np.zeros(handfuls, dtype=np.int64)
    for largest in np.argsort(-sizes, kind="stable"):
        partition[largest] = np.argmin(loads)
        loads[partition[largest]] += sizes[largest]
    piece = np.repeat(np.arange(len(columns["rows"])), columns["rows"])
    offset = rows - np.repeat(np.cumsum(columns["rows"]) - columns["rows"], columns["rows"])
    for number in np.flatnonzero(loads):
        yield _joined_slices(columns, rows[partition[handful] == number], piece, offset)


def _joined_slices(columns: _Columns, rows: NDArray[Any], piece: NDArray[Any], offset: NDArray[Any]) -> _Columns:
    """Return some rows as pieces: those that follow each other in one piece are one again."""
    begins = np.r_[True, (np.diff(rows) != 1) | (np.diff(piece[rows]) != 0)]
    first = rows[begins]
    share = {name: values[piece[first]] for name, values in columns.items()}
    for name in share.keys() & _COUNTED:
        share[name] += offset[first]
    share["rows"] = np.diff(np.r_[np.flatnonzero(begins), len(rows)])
    return share


def _shares(columns: _Columns, count: int) -> Iterator[_Columns]:
    ends = np.cumsum(columns["rows"])
    starts = ends - columns["rows"]
    cuts = _cuts(ends, count)
    for start, end in pairwise(cuts.tolist()):
        low = int(np.searchsorted(ends, start, side="right"))
        high = int(np.searchsorted(starts, end, side="left"))
        share = {name: values[low:high].copy() for name, values in columns.items()}
        skipped = start - starts[low]
        for name in share.keys() & _COUNTED:
            share[name][0] += skipped
        share["rows"][0] -= skipped
        share["rows"][-1] -= ends[high - 1] - end
        yield share


def _cuts(ends: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the row counts at which partitions begin and end.

    A cut moves to the nearest end of a piece when that is close: otherwise two tasks would decode one row group.
    """
    total = int(ends[-1])
    even = np.arange(1, count, dtype=np.int64) * total // count
    after = np.searchsorted(ends, even)
    before = np.maximum(after - 1, 0)
    nearest = np.where(ends[after] - even < even - ends[before], ends[after], ends[before])
    near = np.abs(nearest - even) <= total // count // 4
    return np.unique(np.concatenate([[0], np.where(near, nearest, even), [total]]))


def _by_file(share: _Columns, paths: list[str], texts: Mapping[str, str | None]) -> Iterator[FilePieces]:
    """Group pieces that lie in one file, one after the other; a step back within a file begins a new group."""
    path, first_row = share["path"], share["first_row"]
    breaks = np.flatnonzero((path[1:] != path[:-1]) | (first_row[1:] < first_row[:-1])) + 1
    for low, high in zip([0, *breaks], [*breaks, len(path)], strict=True):
        found = {name: values[low:high] for name, values in share.items() if name != "path"}
        yield FilePieces(path=paths[path[low]], columns=texts.get(paths[path[low]]), **found)
