"""Deletion vectors: which rows of a file a Delta table has deleted, read from its log or from a file beside (R156)."""

from __future__ import annotations

import base64
import uuid
import zlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.records import Ranges
from spark_queue.journal.folder import Folder
from spark_queue.journal.store import TooLargeError

#: Most bytes of a file with vectors.
VECTOR_BYTES = 64 * 1024 * 1024

#: What the bytes of a vector begin with: bitmaps by the upper half of row numbers, as CRoaring stores them.
_MAGIC = (1681511377).to_bytes(4, "little")

#: The version of a file with vectors.
_VERSION = 1

#: The digits of Delta's base 85, each by the one of Python's.
_DIGITS = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)

#: Characters of a UUID in that base.
_UUID_CHARACTERS = 20


class VectorError(ValueError):
    """A vector cannot be read as one of its file."""


class _Descriptor(Struct):
    storageType: str  # noqa: N815 - Delta's name
    pathOrInlineDv: str  # noqa: N815 - Delta's name
    cardinality: Annotated[int, Meta(ge=0, lt=2**31)]
    sizeInBytes: Annotated[int, Meta(ge=0, le=VECTOR_BYTES)] = 0  # noqa: N815 - Delta's name
    offset: Annotated[int, Meta(ge=0, le=VECTOR_BYTES)] | None = None


def deleted_rows(folder: Folder, vector: Mapping[str, Any], *, row_count: int) -> Ranges:
    """Return the rows of a file with `row_count` rows that its vector deletes.

    Raises
    ------
    VectorError
        It is none of a table, or is not whole.
    JournalError
        STORE_FAILED.
    """
    try:
        descriptor = msgspec.convert(vector, _Descriptor)
        data = _inline(descriptor) if descriptor.storageType == "i" else _stored(folder, descriptor)
        if not data.startswith(_MAGIC):
            raise VectorError("its form is not known")
        rows = BitMap64(BitMap64.deserialize(data[len(_MAGIC) :]).to_array())
    except VectorError:
        raise
    except (msgspec.MsgspecError, ValueError, TooLargeError) as reason:
        raise VectorError(str(reason)[:300]) from None
    if len(rows) != descriptor.cardinality or (rows and rows.max() >= row_count):
        raise VectorError(f"it deletes {len(rows)} of {row_count} rows, and the log says {descriptor.cardinality}")
    return tuple(to_ranges(rows))


def _inline(descriptor: _Descriptor) -> bytes:
    return _decoded(descriptor.pathOrInlineDv)[: descriptor.sizeInBytes]


def _stored(folder: Folder, descriptor: _Descriptor) -> bytes:
    if descriptor.storageType != "u":
        # An absolute path may lead anywhere.
        raise VectorError(f"it is stored as {descriptor.storageType[:10]!r}, which is not in the table")
    text = descriptor.pathOrInlineDv
    prefix, name = text[:-_UUID_CHARACTERS], uuid.UUID(bytes=_decoded(text[-_UUID_CHARACTERS:]))
    path = f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"
    # A path that leads out of the table is refused, as that of a file with rows is.
    data = folder.store.read(folder.key_of(path), most_bytes=VECTOR_BYTES)
    if data is None:
        raise VectorError(f"its file '{path}' is not there")
    start, size_bytes = descriptor.offset or 0, descriptor.sizeInBytes
    found = data[start + 4 : start + 4 + size_bytes]
    checksum = data[start + 4 + size_bytes : start + 8 + size_bytes]
    is_whole = data[:1] == bytes([_VERSION]) and int.from_bytes(data[start : start + 4], "big") == size_bytes
    if not is_whole or len(found) != size_bytes or zlib.crc32(found).to_bytes(4, "big") != checksum:
        raise VectorError(f"its file '{path}' is not whole")
    return found


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.translate(_DIGITS))
