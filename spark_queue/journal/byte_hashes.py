"""Hashes of many short values of bytes at once, by their buffers: a loop over values takes longer than to write them.

A hash goes by the bytes of its value alone, and is stored for ever (PROTOCOL.md, section 3).
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

#: Multipliers of the finalizer of MurmurHash3.
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)

#: The odd base of the polynomial that the bytes of a value are the coefficients of, modulo 2^64.
_BASE = 0x9E3779B97F4A7C15

#: Bytes that are worked on at once, which bounds the memory. A longer value is hashed by itself.
LONGEST_BYTES = 128 * 1024


def mixed(numbers: Hashes) -> Hashes:
    """Return numbers with their bits spread, so that sums of them tell what they were made of."""
    for multiplier in _MIX:
        numbers = (numbers ^ (numbers >> _SHIFT)) * multiplier
    return numbers ^ (numbers >> _SHIFT)


def hashes_of_bytes(values: Any) -> Hashes:
    """Return a hash of each value of an Arrow array of texts or bytes; of NULL any."""
    stored = values.cast(pa.large_binary())
    _, ends, content = stored.buffers()
    offsets = np.frombuffer(ends, np.int64)[stored.offset : stored.offset + len(stored) + 1]
    data = np.frombuffer(content or b"", np.uint8)
    found = np.empty(len(stored), np.uint64)
    start = 0
    while start < len(stored):
        until = int(np.searchsorted(offsets, offsets[start] + LONGEST_BYTES, side="right")) - 1
        if until == start:
            until += 1
            digest = hashlib.blake2b(data[offsets[start] : offsets[until]].tobytes(), digest_size=8).digest()
            found[start] = int.from_bytes(digest, "big")
        else:
            found[start:until] = _polynomials(data, offsets[start : until + 1])
        start = until
    return mixed(found ^ mixed(np.diff(offsets).view(np.uint64)))


def _polynomials(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Hashes:
    """Return the polynomial of each of some adjacent values.

    One running sum has all of them: the difference between the two ends of a value, divided by the power at which it began.
    """
    powers, inverses = _powers(LONGEST_BYTES)
    first, until = int(offsets[0]), int(offsets[-1])
    # A byte of zero counts, too.
    weighted = (data[first:until].astype(np.uint64) + np.uint64(1)) * powers[: until - first]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weighted)])
    places = offsets - first
    found: Hashes = np.diff(sums[places]) * inverses[places[:-1]]
    return found


@functools.cache
def _powers(most: int) -> tuple[Hashes, Hashes]:
    """Return the powers of the base, up to the one of `most`, and of its inverse, modulo 2^64."""

    def powers(base: int) -> Hashes:
        factors = np.full(most + 1, base, np.uint64)
        factors[0] = 1
        return np.cumprod(factors)

    return powers(_BASE), powers(pow(_BASE, -1, 1 << 64))
