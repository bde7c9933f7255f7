"""Columns of Python values, of dicts and of JSON: each value by its own type, beside any others.

Arrow would choose one type for a whole column from the values that it sees, and turn all of them into that. Here the values of each
Python type become a column of their own, are cast by the rule of all ways in, and are put together again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from spark_queue.journal.casting import cast
from spark_queue.journal.conversion import (
    Column,
    LossError,
    TypeKind,
    fields_of,
    kind_of,
    list_array,
    map_array,
    refusal,
    resolve_fields,
    sentence,
    struct_array,
)
from spark_queue.journal.sql_types import sql_type

#: Pandas' names of missing values; it need not be there to be asked.
_MISSING = frozenset({"NaTType", "NAType"})

#: More digits than a whole number of 64 bits has. A Decimal of a few bytes may have a thousand million of them.
_WHOLE_DIGITS = 20

#: Stands for times with a zone: Python gives them and those without one type.
_AWARE = "datetime with a zone"


def to_column(values: Sequence[Any], wanted: pa.DataType, *, timezone: str | None = None, epoch: str | None = None) -> Column:
    """Make a column of Python values; None, NaT and pandas.NA are NULL, and nothing else is.

    `timezone` and `epoch` as in `casting.cast`.
    """
    kinds = set(map(type, values)) - {type(None)}
    missing = {kind for kind in kinds if kind.__name__ in _MISSING}
    if missing:
        values, kinds = [None if type(value) in missing else value for value in values], kinds - missing
    if types.is_struct(wanted):
        return _structs(values, wanted, timezone, epoch)
    if types.is_map(wanted):
        return _maps(values, wanted, timezone, epoch)
    if types.is_list(wanted):
        return _lists(values, wanted, timezone, epoch)
    if len(kinds) > 1 or any(issubclass(kind, datetime) for kind in kinds):
        return _by_kind(values, wanted, timezone, epoch)
    return _of_one_kind(values, next(iter(kinds), type(None)), wanted, timezone, epoch)


def _by_kind(values: Sequence[Any], wanted: pa.DataType, timezone: str | None, epoch: str | None) -> Column:
    """Make a column of the values of each kind, and one of them all."""
    rows_of: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        kind: Any = _AWARE if isinstance(value, datetime) and _has_offset(row, value) else type(value)
        rows_of.setdefault(kind, []).append(row)
    positions = np.empty(len(values), dtype=np.int64)
    parts: list[Column] = []
    losses: list[LossError] = []
    done = 0
    for kind, rows in rows_of.items():
        positions[rows] = np.arange(done, done + len(rows))
        done += len(rows)
        try:
            parts.append(_of_one_kind([values[row] for row in rows], kind, wanted, timezone, epoch))
        except LossError as lost:
            losses.append(LossError(rows[lost.row], lost.found, lost.reason))
    if losses:
        raise min(losses, key=lambda lost: lost.row)
    order: Any = pa.array(positions)
    return pa.concat_arrays(parts).take(order)


def _has_offset(row: int, value: datetime) -> bool:
    """Return whether a time says how far it is from UTC, which Arrow asks its zone for, in whole seconds."""
    try:
        offset = value.utcoffset()
    except Exception as reason:  # noqa: BLE001  # Zones are code of anybody.
        raise LossError(row, "datetime", sentence(f"its time zone gives no offset: {reason!r}")) from None
    if offset is not None and offset.microseconds:
        raise LossError(row, "datetime", f"its offset {offset} is not in whole seconds.")
    return offset is not None


def _of_one_kind(values: Sequence[Any], kind: Any, wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    if kind is type(None):
        nulls: Column = pa.nulls(len(values), wanted)
        return nulls
    if kind is _AWARE or issubclass(kind, datetime):
        _refuse_other_times(values)
        return cast(
            pa.array(values, pa.timestamp("us", tz="UTC" if kind is _AWARE else None)), wanted, timezone=timezone, epoch=epoch
        )
    if issubclass(kind, Decimal):
        texts = [_text(value, whole=types.is_integer(wanted)) for value in values]
        return _of_texts(texts, pa.decimal128(38), wanted, kind, epoch)
    if issubclass(kind, np.timedelta64):
        # For NumPy they are whole numbers.
        values, kind = [None if value is None or np.isnat(value) else timedelta() for value in values], timedelta
    own = next((own for known, own in _OWN if issubclass(kind, known)), None)
    try:
        column = pa.array(values, own)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as reason:
        if issubclass(kind, int | np.integer):
            # Larger than 64 bits, which a DECIMAL or a DOUBLE may hold.
            return _of_texts([_digits(row, value) for row, value in enumerate(values)], pa.int64(), wanted, kind, epoch)
        raise LossError(_first_bad(values, own), kind.__name__, sentence(reason)) from None
    if types.is_nested(column.type):
        raise LossError(_first_bad(values, pa.null()), kind.__name__, f"it holds several values, but a {sql_type(wanted)} is one.")
    return cast(column, wanted, timezone=timezone, epoch=epoch)


#: Python types -> the type of a column of such values; the others Arrow knows, or does not.
_OWN: tuple[tuple[Any, pa.DataType], ...] = (
    ((bool, np.bool_), pa.bool_()),
    ((int, np.integer), pa.int64()),
    (np.float16, pa.float16()),
    (np.float32, pa.float32()),
    (float, pa.float64()),
    (str, pa.string()),
    ((bytes, bytearray, memoryview), pa.binary()),
    (date, pa.date32()),
)


def _first_bad(values: Sequence[Any], own: pa.DataType | None) -> int:
    """Return the first value of which Arrow makes no column."""
    for row, value in enumerate(values):
        try:
            pa.array([value], own)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return row
    return 0


def _of_texts(texts: Sequence[str | None], said: pa.DataType, wanted: Any, kind: Any, epoch: str | None) -> Column:
    """Make a column of numbers that go by their texts, which have all of their digits and say NaN; `said` is their type."""
    counts = epoch is not None and kind_of(wanted) is TypeKind.INSTANT
    reason = None if counts else refusal(said, wanted)
    if reason is not None:
        raise LossError(next(row for row, text in enumerate(texts) if text is not None), kind.__name__, reason)
    try:
        return cast(pa.array(texts, pa.string()), wanted, epoch=epoch)
    except LossError as lost:
        raise LossError(lost.row, kind.__name__, lost.reason) from None


def _digits(row: int, value: int | None) -> str | None:
    try:
        return None if value is None else str(int(value))
    except ValueError:
        raise LossError(row, "int", "it has thousands of digits, more than any column holds.") from None


def _text(value: Decimal | None, *, whole: bool) -> str | None:
    """Return a Decimal as text; one that is a whole number without a point, as far as whole numbers reach."""
    if value is None:
        return None
    is_whole = whole and value.is_finite() and value.adjusted() < _WHOLE_DIGITS and value == value.to_integral_value()
    return str(int(value)) if is_whole else str(value)


def _refuse_other_times(values: Sequence[Any]) -> None:
    """Refuse times of pandas that no datetime can hold: as one they have another year, or no nanoseconds."""
    for row, value in enumerate(values):
        if value is not None and type(value) is not datetime:
            if not date.min.year <= value.year <= date.max.year:
                raise LossError(row, type(value).__name__, f"{value} is outside of the years 1 to 9999.")
            if getattr(value, "nanosecond", 0):
                raise LossError(row, type(value).__name__, f"{value} has nanoseconds, but only microseconds are stored.")


def _structs(values: Sequence[Any], wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    members: dict[str, list[Any]] = {field.name: [None] * len(values) for field in fields_of(wanted)}
    known: dict[tuple[Any, ...], dict[Any, str]] = {}
    for row, value in enumerate(values):
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise LossError(row, type(value).__name__, "the message type declares fields here.")
        names = tuple(value)
        if names not in known:
            known[names] = resolve_fields(names, wanted, row=row, found="dict")
        for name, field in known[names].items():
            members[field][row] = value[name]
    columns = {
        field.name: to_column(members[field.name], field.type, timezone=timezone, epoch=epoch) for field in fields_of(wanted)
    }
    return struct_array(columns, wanted, nulls=pa.array([value is None for value in values], pa.bool_()))


def _lists(values: Sequence[Any], wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    lists = [_elements(row, value, "an array") for row, value in enumerate(values)]
    flat = [element for each in lists if each is not None for element in each]
    return list_array(_lengths(lists), wanted, lambda: to_column(flat, wanted.value_type, timezone=timezone, epoch=epoch))


def _maps(values: Sequence[Any], wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    maps = [_elements(row, value.items() if isinstance(value, Mapping) else value, "a map") for row, value in enumerate(values)]
    for row, pairs in enumerate(maps):
        if pairs is not None and not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise LossError(row, type(values[row]).__name__, "a map is a dict, or pairs of a key and a value.")
    pairs = [pair for each in maps if each is not None for pair in each]
    return map_array(
        _lengths(maps),
        lambda: to_column([pair[0] for pair in pairs], wanted.key_type, timezone=timezone, epoch=epoch),
        lambda: to_column([pair[1] for pair in pairs], wanted.item_type, timezone=timezone, epoch=epoch),
    )


def _elements(row: int, value: Any, wanted: str) -> list[Any] | None:
    if value is None:
        return None
    try:
        if not isinstance(value, str | bytes | bytearray | Mapping):
            return list(value)
    except TypeError:
        # It has no elements, or numpy's array has no dimension.
        pass
    raise LossError(row, type(value).__name__, f"the message type declares {wanted} here.")


def _lengths(lists: Iterable[list[Any] | None]) -> list[float]:
    return [np.nan if each is None else len(each) for each in lists]
