"""Footers of Parquet files, taken apart and put together again: Thrift's compact protocol, as far as it matters to a footer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_TRUE, _FALSE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 7, 8, 9, 12
_MAGIC = b"PAR1"


@dataclass
class Value:
    """A value and its type in the protocol: a number, bytes, a list of values, or a struct as values by number of their field."""

    kind: int
    value: Any

    def __getitem__(self, key: int) -> Value:
        found: Value = self.value[key]
        return found


def change_footer(data: bytes, change: Callable[[Value], None]) -> bytes:
    """Return a Parquet file with another footer."""
    size = int.from_bytes(data[-8:-4], "little")
    footer = _Reader(data[-8 - size : -8]).value(_STRUCT)
    change(footer)
    written = _written(footer)
    return b"".join((data[: -8 - size], written, len(written).to_bytes(4, "little"), _MAGIC))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, kind: int) -> Value:
        match kind:
            case 1 | 2:
                return Value(kind, None)
            case 7:
                return Value(kind, self._take(8))
            case 8:
                return Value(kind, self._take(self._varint()))
            case 9:
                header = self._byte()
                count = header >> 4 if header >> 4 < 15 else self._varint()
                return Value(kind, [self.value(header & 15) for _ in range(count)])
            case 12:
                return Value(kind, self._fields())
        number = self._varint()
        return Value(kind, number >> 1 ^ -(number & 1))

    def _fields(self) -> dict[int, Value]:
        found, number = dict[int, Value](), 0
        while header := self._byte():
            number += header >> 4
            found[number] = self.value(header & 15)
        return found

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number, shift = number | (byte & 127) << shift, shift + 7
        return number | byte << shift


def _written(value: Value) -> bytes:
    match value.kind:
        case 1 | 2:
            return b""
        case 7:
            return bytes(value.value)
        case 8:
            return _varint(len(value.value)) + bytes(value.value)
        case 9:
            kind = value.value[0].kind if value.value else _STRUCT
            return bytes([0xF0 | kind]) + _varint(len(value.value)) + b"".join(map(_written, value.value))
        case 12:
            fields = sorted(value.value.items())
            return b"".join(bytes([each.kind]) + _varint(2 * number) + _written(each) for number, each in fields) + b"\0"
    return _varint(2 * value.value if value.value >= 0 else -2 * value.value - 1)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
