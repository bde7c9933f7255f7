"""Hashes of bytes: by each value alone, as its definition says, however values lie in their buffers."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from spark_queue.journal import byte_hashes
from spark_queue.journal.byte_hashes import hashes_of_bytes, mixed

WORD = 1 << 64


def defined(value: bytes, longest: int) -> int:
    """Return the hash of a value by its definition, byte by byte."""
    found = sum((byte + 1) * pow(byte_hashes._BASE, place, WORD) for place, byte in enumerate(value)) % WORD
    if len(value) > longest:
        found = int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "big")
    length = mixed(np.array([len(value)], np.uint64))
    return int(mixed(np.array([found], np.uint64) ^ length)[0])


def values_of(seed: int, *, longest: int) -> Sequence[bytes]:
    """Return values of all lengths around the bound, and bytes that lie there beside others that differ in little."""
    chance = random.Random(seed)
    lengths = [0, 0, 1, 2, longest - 1, longest, longest + 1, 3 * longest] * 6
    values = [chance.randbytes(length) for length in lengths] + [b"\0", b"\0\0", b"ab", b"ba", b"abc"]
    chance.shuffle(values)
    return values


@pytest.mark.parametrize("seed", range(4))
def test_each_value_has_its_own_hash_whatever_stands_around_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_hashes, "LONGEST_BYTES", 50)
    values = values_of(seed, longest=50)
    given = pa.array(values, pa.binary())
    assert hashes_of_bytes(given).tolist() == [defined(value, 50) for value in values]
    assert hashes_of_bytes(given.slice(7, 20)).tolist() == hashes_of_bytes(given)[7:27].tolist()
    assert len({*hashes_of_bytes(given).tolist()}) == len(set(values))


def test_a_long_value_is_hashed_by_itself() -> None:
    large = b"x" * (byte_hashes.LONGEST_BYTES + 1)
    given = hashes_of_bytes(pa.array([b"a", large, large[:-1], b"b"], pa.large_binary()))
    assert given.tolist() == [defined(value, byte_hashes.LONGEST_BYTES) for value in (b"a", large, large[:-1], b"b")]


def test_texts_are_their_bytes_and_null_disturbs_nothing() -> None:
    texts = pa.array(["ü", None, "", "x"])
    given = hashes_of_bytes(texts)
    assert [given[0], given[2], given[3]] == [defined(value, 99) for value in ("ü".encode(), b"", b"x")]
    assert len(hashes_of_bytes(pa.array([], pa.string()))) == 0
    assert hashes_of_bytes(pa.array([None, None], pa.binary())).tolist() == [defined(b"", 99)] * 2
