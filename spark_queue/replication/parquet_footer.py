"""What the footer of a Parquet file says of its columns, taken from its bytes.

pyarrow ends the process where a footer says odd things of a column and that column is asked for; so it is not asked.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

#: Types of Thrift's compact protocol, as far as they are named here.
_TRUE, _I16, _I64, _LIST, _STRUCT = 1, 4, 6, 9, 12

#: Fields of a file, of a row group, of a column and of its description, as the format numbers them, with their types.
_GROUPS, _COLUMNS, _DESCRIPTION, _VALUES = (4, _LIST), (1, _LIST), (3, _STRUCT), (5, _I64)

#: Most bits of a number.
_BITS_MOST = 64


def value_counts(source: Any) -> list[list[int]]:
    """Return how many values each column of each row group has, as a file says.

    Parameters
    ----------
    source : str or file-like
        Path or content of a file whose footer pyarrow has read.

    Raises
    ------
    ValueError
        When the footer is none.
    """
    if isinstance(source, str):
        with pa.OSFile(source, "r") as file:
            return value_counts(file)
    source.seek(-8, 2)
    size_bytes = int.from_bytes(source.read(4), "little")
    source.seek(-8 - size_bytes, 2)
    try:
        footer = _Reader(source.read(size_bytes)).value(_STRUCT)
        return [[column[_DESCRIPTION][_VALUES] for column in group[_COLUMNS]] for group in footer[_GROUPS]]
    except (LookupError, TypeError, RecursionError) as reason:
        raise ValueError(f"its footer is damaged: {reason!r}") from None


class _Reader:
    """Reads values of Thrift's compact protocol: numbers, bytes, lists, and structs by number and type of their fields."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, kind: int, *, is_element: bool = False) -> Any:
        match kind:
            case 1 | 2:
                # A field is true or false by its type.
                return self._take(1) if is_element else kind == _TRUE
            case 3:
                return self._take(1)
            case 4 | 5 | 6:
                number = self._varint()
                return number >> 1 ^ -(number & 1)
            case 7:
                return self._take(8)
            case 8:
                return self._take(self._varint())
            case 9 | 10:
                return self._list()
            case 11:
                return self._map()
            case 12:
                return self._struct()
        raise LookupError(f"there is no type {kind}")

    def _list(self) -> list[Any]:
        header = self._byte()
        count = header >> 4 if header >> 4 < 15 else self._varint()
        return [self.value(header & 15, is_element=True) for _ in range(count)]

    def _map(self) -> list[Any]:
        count = self._varint()
        kinds = self._byte() if count else 0
        return [self.value(kind, is_element=True) for _ in range(count) for kind in (kinds >> 4, kinds & 15)]

    def _struct(self) -> dict[tuple[int, int], Any]:
        found, number = dict[tuple[int, int], Any](), 0
        while header := self._byte():
            # A field is named by its distance from the one before, or by its number where that is far.
            number = number + (header >> 4) if header >> 4 else self.value(_I16)
            found[number, header & 15] = self.value(header & 15)
        return found

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise LookupError("it ends too early")
        self._at += count
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number, shift = number | (byte & 127) << shift, shift + 7
            if shift >= _BITS_MOST:
                raise LookupError("a number of it is too long")
        return number | byte << shift
