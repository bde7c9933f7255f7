"""What a cast would lose without a word: Arrow refuses overflow and truncation, but not these.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_NAIVE = "the values have no time zone, so they could mean several instants."
_INSTANTS = "the values are instants, which clocks of different time zones read differently."
_UNIT = "a number does not say whether it counts seconds, milliseconds or microseconds."
_CHANGED = "some would be stored as other values."


def type_loss(found: pa.DataType, wanted: pa.DataType) -> str | None:
    """Give why no value of one type can be told in another, at any depth; None where it can, or where Arrow says so itself."""
    if types.is_struct(found) and types.is_struct(wanted):
        names = {field.name for field in _fields(wanted)}
        lost = next((field.name for field in _fields(found) if field.name not in names), None)
        if lost is not None:
            return f"the message type has no field '{lost}'."
    elif types.is_timestamp(wanted):
        return _instant_loss(found, wanted)
    return next((reason for pair in _parts(found, wanted) if (reason := type_loss(*pair))), None)


def value_loss(column: Any, cast: Any) -> str | None:
    """Give what casting a column did to its values; None when they are what they were."""
    if any(types.is_float32(wanted) for _, wanted in _leaves(column.type, cast.type)) and not types.is_nested(cast.type):
        return "some are too large." if pc.any(pc.and_not(pc.is_inf(cast), pc.is_inf(column))).as_py() else None
    if not any(_rounds(*pair) for pair in _leaves(column.type, cast.type)):
        return None
    return None if cast.cast(column.type).equals(column) else _CHANGED


def object_loss(value: Any, wanted: pa.DataType) -> str | None:
    """Give what making a value of `wanted` of a Python object would lose; None for nothing."""
    if types.is_timestamp(wanted):
        return _time_loss(value, wanted)
    if types.is_struct(wanted) and isinstance(value, Mapping):
        names = {field.name: field for field in _fields(wanted)}
        lost = next((name for name in value if name not in names), None)
        if lost is not None:
            return f"the message type has no field '{lost}'."
        missing = next((name for name, field in names.items() if not field.nullable and value.get(name) is None), None)
        if missing is not None:
            return f"field '{missing}' is NULL."
        return _first_loss((value.get(name), field.type) for name, field in names.items())
    if types.is_map(wanted):
        pairs = value.items() if isinstance(value, Mapping) else value or ()
        return _first_loss(part for key, item in pairs for part in ((key, wanted.key_type), (item, wanted.item_type)))
    if types.is_list(wanted) and isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return _first_loss((each, wanted.value_type) for each in value)
    return None


def _first_loss(parts: Iterable[tuple[Any, pa.DataType]]) -> str | None:
    return next((reason for value, kind in parts if (reason := object_loss(value, kind))), None)


def _instant_loss(found: pa.DataType, wanted: Any) -> str | None:
    if types.is_integer(found) or types.is_floating(found):
        return _UNIT
    zoned = types.is_timestamp(found) and found.tz is not None
    if wanted.tz is not None and not zoned and (types.is_timestamp(found) or types.is_date(found)):
        return _NAIVE
    return _INSTANTS if wanted.tz is None and zoned else None


def _time_loss(value: Any, wanted: Any) -> str | None:
    if value != value:  # noqa: PLR0124  # NaN and NaT, which stand for NULL.
        return None
    if isinstance(value, int | float):
        return _UNIT
    if not isinstance(value, date):
        return None
    zoned = isinstance(value, datetime) and value.tzinfo is not None
    if wanted.tz is not None:
        return None if zoned else _NAIVE
    return _INSTANTS if zoned else None


def _rounds(found: pa.DataType, wanted: pa.DataType) -> bool:
    number = types.is_integer(found) or types.is_floating(found)
    return (types.is_floating(found) and types.is_decimal(wanted)) or (number and types.is_boolean(wanted))


def _leaves(found: pa.DataType, wanted: pa.DataType) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    if not types.is_nested(wanted):
        yield found, wanted
    for pair in _parts(found, wanted):
        yield from _leaves(*pair)


def _parts(found: Any, wanted: Any) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    """Give the types inside two nested types of one kind, by field name or place."""
    if types.is_struct(found) and types.is_struct(wanted):
        known = {field.name: field.type for field in _fields(found)}
        yield from ((known[field.name], field.type) for field in _fields(wanted) if field.name in known)
    elif types.is_map(found) and types.is_map(wanted):
        yield from ((found.key_type, wanted.key_type), (found.item_type, wanted.item_type))
    elif types.is_list(wanted) and (types.is_list(found) or types.is_large_list(found) or types.is_fixed_size_list(found)):
        yield found.value_type, wanted.value_type


def _fields(kind: Any) -> Iterator[Any]:
    return (kind.field(index) for index in range(kind.num_fields))
