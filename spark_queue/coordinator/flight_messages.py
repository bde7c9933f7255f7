"""Messages of Arrow Flight's one method, read and written."""

from __future__ import annotations

import pyarrow as pa

#: Fields of Flight's messages `Action` and `Result`, as protobuf has them: a number, and that a length follows.
_TYPE, _BODY, _RESULT = 1 << 3 | 2, 2 << 3 | 2, 1 << 3 | 2


def read_action(message: bytes) -> tuple[str, memoryview]:
    """Return type and body of an action of Flight."""
    fields = {_TYPE: memoryview(b""), _BODY: memoryview(b"")}
    at, end = 0, len(message)
    while at < end:
        field, at = _varint(message, at)
        size, begin = _varint(message, at)
        at = begin + size
        if field not in fields or at > end:
            raise ValueError(field)
        fields[field] = memoryview(message)[begin:at]
    return str(fields[_TYPE], "utf-8"), fields[_BODY]


def encode_result(*parts: bytes | pa.Buffer) -> bytes:
    """Return a result of Flight; its parts follow each other."""
    size, head = sum(map(len, parts)), bytearray((_RESULT,))
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return b"".join((head, *(memoryview(part) for part in parts)))


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of protobuf, and where the next thing begins."""
    value = shift = 0
    while shift < 64 and at < len(message):
        byte, at = message[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError(value)
