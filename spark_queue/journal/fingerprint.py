"""Fingerprints of the rows of a write: of each column a sum that no order of rows and no split into files changes.

They are stored for ever (PROTOCOL.md, section 3), so they go by values, and by nothing that a library may do otherwise one day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_queue.journal.byte_hashes import Hashes, hashes_of_bytes, mixed

#: Columns that are no part of the published rows: each staging makes them anew.
_OF_STAGING = frozenset({"publisher", "sequence", "published_at", "expires_at"})

#: How far from its staging a time may be that `current_timestamp()` has made, in microseconds: a long job's.
_DAY_US = 24 * 3600 * 1_000_000

#: The text that `uuid()` makes.
_RANDOM_UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

#: Functions whose values a repeat makes anew, as far as values look like theirs.
_TIME, _RANDOM, _UUID = "time", "random", "uuid"

_BITS_64 = (1 << 64) - 1

#: Columns whose values are bytes as they lie there; other values that are no numbers are hashed by their JSON.
_OF_BYTES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)

#: The hash of NULL.
_NULL = np.uint64(0x9E3779B97F4A7C15)


class ColumnSum(msgspec.Struct, frozen=True):
    """Sum of a column of one staged file, or of several."""

    #: Of the hashes of all values, modulo 2^64; and the lowest and highest of them, which are one where all values are.
    total: int
    low: int
    high: int
    #: Function that may have made all of its values; empty for none.
    made_by: str = ""

    def joined(self, other: ColumnSum) -> ColumnSum:
        """Return the sum of both."""
        made_by = self.made_by if self.made_by == other.made_by else ""
        return ColumnSum((self.total + other.total) & _BITS_64, min(self.low, other.low), max(self.high, other.high), made_by)

    @property
    def is_constant(self) -> bool:
        """Whether all values are the same."""
        return self.low == self.high

    @property
    def is_made_anew(self) -> bool:
        """Whether a repeat may have other values: `current_timestamp()` gives one to all rows, `rand()` one to each."""
        return self.made_by in (_RANDOM, _UUID) or (self.made_by == _TIME and self.is_constant)


class ColumnSums:
    """Sums of the columns of stored rows, made while those are written; `now_ms` is the time of their staging."""

    def __init__(self, now_ms: int) -> None:
        self._now_us = now_ms * 1_000
        self.columns: dict[str, ColumnSum] = {}

    def watch(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield tables as they come."""
        for table in tables:
            self.columns = joined([self.columns, self._of(table)])
            yield table

    def _of(self, table: pa.Table) -> dict[str, ColumnSum]:
        found: dict[str, ColumnSum] = {}
        for name in table.schema.names:
            if name not in _OF_STAGING:
                values: Any = table.column(name).combine_chunks()
                hashes = _hashes(values)
                total = int(hashes.sum(dtype=np.uint64))
                found[name] = ColumnSum(total, int(hashes.min()), int(hashes.max()), self._made_by(values))
        return found

    def _made_by(self, values: Any) -> str:
        if values.null_count:
            return ""
        if pa.types.is_timestamp(values.type):
            near: Any = np.abs(values.cast(pa.int64()).to_numpy() - self._now_us) < _DAY_US
            return _TIME if near.all() else ""
        if pa.types.is_floating(values.type):
            numbers = values.to_numpy(zero_copy_only=False)
            return _RANDOM if ((numbers >= 0) & (numbers < 1)).all() else ""
        # Nearly all texts are none, as the first one tells.
        is_uuid = pa.types.is_string(values.type) and _are_uuids(values.slice(0, 1)) and _are_uuids(values)
        return _UUID if is_uuid else ""


def joined(files: Sequence[Mapping[str, ColumnSum]]) -> dict[str, ColumnSum]:
    """Return the sums over files that have rows, all of one message type."""
    found: dict[str, ColumnSum] = {}
    for columns in files:
        for name, column in columns.items():
            found[name] = found[name].joined(column) if name in found else column
    return found


def fingerprints_of_rows(files: Sequence[Mapping[str, ColumnSum]], rows: int, *, number: int) -> tuple[int, int]:
    """Return the fingerprints that a write shares with a repeat of the very rows, and with one that computes them again.

    For the second a column that `current_timestamp()` or `rand()` may have made is left out; one of `uuid()`, too,
    unless nothing else parts the rows: ids that stood in a source look the same.
    """
    columns = joined(files)
    kept = {name for name, column in columns.items() if not column.is_made_anew}
    if all(columns[name].is_constant for name in kept):
        kept |= {name for name, column in columns.items() if column.made_by == _UUID}
    every, some = ([[name, columns[name].total] for name in sorted(names)] for names in (columns, kept))
    return (
        fingerprint(msgspec.json.encode(["rows", number, rows, every])),
        fingerprint(msgspec.json.encode(["kept", number, rows, some])),
    )


def fingerprint(data: bytes) -> int:
    """Return a number of 63 bits for some bytes: the version of a Delta transaction is one."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def _are_uuids(values: Any) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, _RANDOM_UUID)).as_py())


def _hashes(values: Any) -> Hashes:
    """Return a hash of each value; equal values of a column have equal ones, whatever rows stand around them."""
    if not pa.types.is_dictionary(values.type):
        return _hashes_of_each(values)
    # Behind all others stands that of a row without a value.
    hashes = np.append(_hashes_of_each(values.dictionary), _NULL)
    found: Hashes = hashes[values.indices.cast(pa.int64()).fill_null(len(values.dictionary)).to_numpy(zero_copy_only=False)]
    return found


def _hashes_of_each(values: Any) -> Hashes:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        hashes = mixed(_numbers(values))
    elif any(is_kind(kind) for is_kind in _OF_BYTES):
        hashes = hashes_of_bytes(values)
    else:
        hashes = hashes_of_bytes(pa.array([msgspec.json.encode(value) for value in values.to_pylist()], pa.large_binary()))
    return np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)


def _numbers(values: Any) -> Hashes:
    """Return the bits of each number; of NULL any."""
    if pa.types.is_floating(values.type):
        numbers: Any = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(numbers, dtype=np.float64).view(np.uint64)
    if pa.types.is_boolean(values.type) or pa.types.is_integer(values.type):
        whole = values.cast(pa.int64())
    else:
        # Days are 32 bits wide, all others 64.
        whole = (values.cast(pa.int32()) if values.type.bit_width == 32 else values).cast(pa.int64())
    found: Any = whole.fill_null(0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(found, dtype=np.int64).view(np.uint64)
