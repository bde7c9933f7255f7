"""Kinds of types, and which of them can tell each other's values.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import pyarrow as pa
from pyarrow import types


class TypeKind(StrEnum):
    """Types that are alike; the name is what people call them."""

    TRUTH = "BOOLEAN"
    WHOLE = "whole numbers"
    POINT = "FLOAT and DOUBLE"
    DECIMAL = "DECIMAL"
    TEXT = "STRING"
    BYTES = "BINARY"
    DATE = "DATE"
    WALL = "TIMESTAMP_NTZ"
    INSTANT = "TIMESTAMP"


NUMBERS = frozenset({TypeKind.WHOLE, TypeKind.POINT, TypeKind.DECIMAL})
TIMES = frozenset({TypeKind.DATE, TypeKind.WALL, TypeKind.INSTANT})

#: What a column is declared as -> what may be handed over for it, beside texts and itself.
_ALLOWED: dict[TypeKind, frozenset[TypeKind]] = {
    TypeKind.TRUTH: frozenset({TypeKind.WHOLE, TypeKind.POINT}),
    TypeKind.WHOLE: NUMBERS,
    TypeKind.POINT: NUMBERS,
    TypeKind.DECIMAL: NUMBERS,
    TypeKind.TEXT: frozenset({TypeKind.BYTES, TypeKind.WHOLE, TypeKind.TRUTH, TypeKind.DATE}),
    TypeKind.BYTES: frozenset(),
    TypeKind.DATE: frozenset({TypeKind.WALL}),
    TypeKind.WALL: frozenset({TypeKind.DATE}),
    TypeKind.INSTANT: frozenset(),
}
_UNIT = "a number does not say whether it counts days, seconds, milliseconds or microseconds."
_NAIVE = "the value has no time zone, so it could mean several instants."
_INSTANTS = "the value is an instant, which clocks of different time zones read differently."
_WRITTEN = "it can be written in several ways, and which text is meant is not said."


def refusal(found: pa.DataType, wanted: pa.DataType, *, timezone: str | None = None) -> str | None:
    """Return why no value of one type can be told in another, neither of them nested; None where some can."""
    have, want = kind_of(found), kind_of(wanted)
    if have is None or want is None:
        return f"{found} has no values of type {want or wanted}."
    if have in (want, TypeKind.TEXT) or have in _ALLOWED[want] or (want is TypeKind.INSTANT and have is TypeKind.WALL and timezone):
        return None
    if want in TIMES and have in NUMBERS:
        return _UNIT
    if want is TypeKind.INSTANT and have in TIMES:
        return _NAIVE
    if have is TypeKind.INSTANT and want in TIMES:
        return _INSTANTS
    return _WRITTEN if want is TypeKind.TEXT else f"{have} has no values of type {want}."


def kind_of(kind: pa.DataType) -> TypeKind | None:
    """Return the kind of a type; None for nested types, and for those that no column can be declared as."""
    if types.is_timestamp(kind):
        return TypeKind.WALL if kind.tz is None else TypeKind.INSTANT
    return next((name for is_kind, name in _KINDS if is_kind(kind)), None)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], TypeKind], ...] = (
    (types.is_boolean, TypeKind.TRUTH),
    (types.is_integer, TypeKind.WHOLE),
    (types.is_floating, TypeKind.POINT),
    (types.is_decimal, TypeKind.DECIMAL),
    (types.is_string, TypeKind.TEXT),
    (types.is_large_string, TypeKind.TEXT),
    (types.is_string_view, TypeKind.TEXT),
    (types.is_binary, TypeKind.BYTES),
    (types.is_large_binary, TypeKind.BYTES),
    (types.is_binary_view, TypeKind.BYTES),
    (types.is_fixed_size_binary, TypeKind.BYTES),
    (types.is_date, TypeKind.DATE),
)
