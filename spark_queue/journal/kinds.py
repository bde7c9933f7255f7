"""Kinds of types, and which of them can tell each other's values.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import pyarrow as pa
from pyarrow import types


class ValueKind(StrEnum):
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


NUMBERS = frozenset({ValueKind.WHOLE, ValueKind.POINT, ValueKind.DECIMAL})
TIMES = frozenset({ValueKind.DATE, ValueKind.WALL, ValueKind.INSTANT})

#: What a column is declared as -> what may be handed over for it, beside texts and itself.
_ALLOWED: dict[ValueKind, frozenset[ValueKind]] = {
    ValueKind.TRUTH: frozenset({ValueKind.WHOLE, ValueKind.POINT}),
    ValueKind.WHOLE: NUMBERS,
    ValueKind.POINT: NUMBERS,
    ValueKind.DECIMAL: NUMBERS,
    ValueKind.TEXT: frozenset({ValueKind.BYTES, ValueKind.WHOLE, ValueKind.TRUTH, ValueKind.DATE}),
    ValueKind.BYTES: frozenset(),
    ValueKind.DATE: frozenset({ValueKind.WALL}),
    ValueKind.WALL: frozenset({ValueKind.DATE}),
    ValueKind.INSTANT: frozenset(),
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
    if (
        have in (want, ValueKind.TEXT)
        or have in _ALLOWED[want]
        or (want is ValueKind.INSTANT and have is ValueKind.WALL and timezone)
    ):
        return None
    if want in TIMES and have in NUMBERS:
        return _UNIT
    if want is ValueKind.INSTANT and have in TIMES:
        return _NAIVE
    if have is ValueKind.INSTANT and want in TIMES:
        return _INSTANTS
    return _WRITTEN if want is ValueKind.TEXT else f"{have} has no values of type {want}."


def kind_of(kind: pa.DataType) -> ValueKind | None:
    """Return the kind of a type; None for nested types, and for those that no column can be declared as."""
    if types.is_timestamp(kind):
        return ValueKind.WALL if kind.tz is None else ValueKind.INSTANT
    return next((name for is_kind, name in _KINDS if is_kind(kind)), None)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ValueKind], ...] = (
    (types.is_boolean, ValueKind.TRUTH),
    (types.is_integer, ValueKind.WHOLE),
    (types.is_floating, ValueKind.POINT),
    (types.is_decimal, ValueKind.DECIMAL),
    (types.is_string, ValueKind.TEXT),
    (types.is_large_string, ValueKind.TEXT),
    (types.is_string_view, ValueKind.TEXT),
    (types.is_binary, ValueKind.BYTES),
    (types.is_large_binary, ValueKind.BYTES),
    (types.is_binary_view, ValueKind.BYTES),
    (types.is_fixed_size_binary, ValueKind.BYTES),
    (types.is_date, ValueKind.DATE),
)
