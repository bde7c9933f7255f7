"""Columns of Python values, of dicts and of JSON: each value by its own type, whatever stands beside it.

Arrow would take one type for a whole column from the values that it sees, and turn all of them into that. Here the values of each
Python type become a column of their own, are cast by the rule of all ways in, and are put together again.

Casting where nothing is lost, at any depth: one rule for every way in (docs/reference/values.md).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from spark_queue.errors import CallerError
from spark_queue.journal.conversion import (
    Column,
    LossError,
    TypeKind,
    check,
    convert,
    fields_of,
    first_row,
    kind_of,
    list_array,
    map_array,
    refusal,
    resolve_fields,
    sentence,
    since_epoch,
    struct_array,
)


def cast(column: Column, wanted: Any, *, timezone: str | None = None, epoch: str | None = None) -> Column:
    """Cast a column; values stay what they are, or it is refused.

    Parameters
    ----------
    column
        Of any type.
    wanted
        A type that Spark DDL can declare.
    timezone
        Zone of times that carry no offset; None refuses them where an instant is wanted.
    epoch
        What numbers count since 1970 UTC where an instant is wanted, one of `EPOCHS`; None refuses them.
    """
    column = _unwrapped(column)
    if column.null_count == len(column):
        nulls: Column = pa.nulls(len(column), wanted)
        return nulls
    if types.is_struct(wanted):
        return _cast_struct(column, wanted, timezone, epoch)
    if types.is_map(wanted):
        return _cast_map(column, wanted, timezone, epoch)
    if types.is_list(wanted):
        return _cast_list(column, wanted, timezone, epoch)
    if epoch is not None and kind_of(wanted) is TypeKind.INSTANT:
        column = since_epoch(column, epoch, others=lambda rest: cast(rest, wanted, timezone=timezone))
    reason = refusal(column.type, wanted, timezone=timezone)
    if reason is not None:
        raise _of_first(column, reason)
    check(column)
    return column if column.type == wanted else convert(column, wanted, timezone)


def _of_first(column: Any, reason: str) -> LossError:
    return LossError(first_row(column.is_valid()) or 0, str(column.type), reason)


def _unwrapped(column: Any) -> Column:
    """Return the values of a column that stores each of them once, by reference, or whose type is a text by another name."""
    if types.is_dictionary(column.type):
        check(column)
        column = column.dictionary_decode()
    if types.is_string_view(column.type):
        # Arrow can do little with views.
        column = column.cast(pa.large_string())
    if isinstance(column.type, pa.BaseExtensionType) and kind_of(column.type.storage_type) is TypeKind.TEXT:
        column = column.storage
    unwrapped: Column = column
    return unwrapped


def _cast_struct(column: Any, wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    if not types.is_struct(column.type):
        raise _of_first(column, "the message type declares fields here.")
    given = [field.name for field in fields_of(column.type)]
    names = resolve_fields(given, wanted, row=first_row(column.is_valid()) or 0, found=str(column.type))
    parts = zip(given, column.flatten(), strict=True)
    members = {names[name]: cast(part, wanted.field(names[name]).type, timezone=timezone, epoch=epoch) for name, part in parts}
    return struct_array(members, wanted, nulls=column.is_null())


def _cast_list(column: Any, wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    if not _is_list(column.type):
        raise _of_first(column, "the message type declares an array here.")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return list_array(lengths, wanted, lambda: cast(column.flatten(), wanted.value_type, timezone=timezone, epoch=epoch))


def _cast_map(column: Any, wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    if not types.is_map(column.type):
        raise _of_first(column, "the message type declares a map here.")
    pairs = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    keys, items = pairs.flatten().flatten()
    lengths = pc.list_value_length(pairs).to_numpy(zero_copy_only=False)
    return map_array(
        lengths,
        lambda: cast(keys, wanted.key_type, timezone=timezone, epoch=epoch),
        lambda: cast(items, wanted.item_type, timezone=timezone, epoch=epoch),
    )


def _is_list(kind: pa.DataType) -> bool:
    return any(is_list(kind) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view))


#: Most digits of a whole number in JSON lines; Python reads no more than some thousands.
_JSON_DIGITS = 1_000


#: What to do about JSON that does not stand on one line for each row.
_OF_SEVERAL_LINES = " If the file is one array, convert it: `jq -c '.[]'`. If an object has several lines, `jq -c .` joins them."


def line_text(line: str | bytes, place: str) -> str:
    """Return a line as text."""
    try:
        return line if isinstance(line, str) else line.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        next_step = " Name the file's encoding, as in --encoding cp1252."
        raise CallerError("ROWS_UNREADABLE", what=place, expected=f"UTF-8 ({reason})", next_step=next_step) from None


def decoded(line: str, place: str) -> Any:
    """Return the object that a line of JSON is."""
    reason: Exception | None = None
    try:
        value = _VALUES.decode(line)
        if isinstance(value, dict):
            return value
    except (ValueError, RecursionError) as found:
        reason = found
    # One that only opens an array or an object is the first line of a file that is one.
    if reason is None or line.strip() in ("[", "{"):
        raise CallerError("ROWS_UNREADABLE", what=place, expected="a JSON object", next_step=_OF_SEVERAL_LINES) from None
    raise CallerError("ROWS_UNREADABLE", what=place, expected=f"a JSON object ({reason})", next_step=" Correct it.") from None


def check_bodies(bodies: Column, first: int) -> None:
    """Refuse a body that is no JSON, on every way in: an expression would find nothing in it, and say nothing."""
    # One by one, since bodies may be large.
    for row, body in enumerate(bodies, start=first):
        text = body.as_py()
        reason = None if text is None else _fault(text)
        if reason is not None:
            next_step = _OF_SEVERAL_LINES if text.strip() in ("[", "{") else ""
            facts = {"expected": f"JSON ({reason})", "next_step": next_step}
            raise CallerError("ROWS_UNREADABLE", what=f"Row {row}", **facts, row=row)


def _fault(text: str) -> Exception | None:
    """Return why a text is not JSON; None for one that is."""
    try:
        _TEXTS.decode(text)
    except (ValueError, RecursionError) as reason:
        return reason
    return None


def is_json(body: str | None) -> bool:
    """Return whether message type json takes a body.

    Made to part rows in Spark before they are published, as ``udf(is_json, "boolean", useArrow=False)``: Spark's own functions,
    such as ``try_parse_json``, take other texts.

    Parameters
    ----------
    body
        A text; None, which is stored as NULL, is taken.
    """
    return body is None or _fault(body) is None


def _constant(word: str) -> None:
    """Refuse the words that Python's reader of JSON would take for numbers."""
    raise ValueError(f'JSON has no {word}; for a DOUBLE write it as the text "{word}"')


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of its members, of which none is dropped for its repeat."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(f"a key stands twice in one object: {Counter(name for name, _ in pairs).most_common(1)[0][0]}")
    return members


def _whole(digits: str) -> int:
    if len(digits) > _JSON_DIGITS:
        raise ValueError(f"a whole number of {len(digits):,} digits is more than any column holds")
    return int(digits)


def _with_point(number: str) -> Decimal:
    try:
        return Decimal(number)
    except ArithmeticError:
        raise ValueError(f"the exponent of {number[:_JSON_DIGITS]} is more than any column holds") from None


#: Reads a line: numbers with a point keep all of their digits.
_VALUES = json.JSONDecoder(parse_int=_whole, parse_float=_with_point, parse_constant=_constant, object_pairs_hook=_once)

#: Reads a body, of which nobody wants the numbers: they stay texts, however long.
_TEXTS = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_constant, object_pairs_hook=_once)


#: How pandas calls what is missing; it need not be there to be asked.
_MISSING = frozenset({"NaTType", "NAType"})

#: More digits than a whole number of 64 bits has. A Decimal of a few bytes may have a thousand million of them.
_WHOLE_DIGITS = 20

#: Stands for times with a zone: Python gives them and those without one type.
_AWARE = "datetime with a zone"


def to_column(values: Sequence[Any], wanted: pa.DataType, *, timezone: str | None = None, epoch: str | None = None) -> Column:
    """Make a column of Python values; None, NaT and pandas.NA are NULL, and nothing else is.

    Parameters
    ----------
    values
        One for each row.
    wanted
        A type that Spark DDL can declare.
    timezone
        Zone of times that carry no offset; None refuses them where an instant is wanted.
    epoch
        What numbers count since 1970 UTC where an instant is wanted, one of `EPOCHS`; None refuses them.
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
        raise LossError(row, "datetime", sentence(f"its time zone does not say its offset: {reason!r}")) from None
    if offset is not None and offset.microseconds:
        raise LossError(row, "datetime", f"its offset {offset} is not of whole seconds.")
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
        raise LossError(_first_bad(values, pa.null()), kind.__name__, f"it holds several values, and a {wanted} is one.")
    return cast(column, wanted, timezone=timezone, epoch=epoch)


#: Python types -> what a column of such values is; the others Arrow knows, or does not.
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
    """Make a column of numbers that go by their texts, which have all of their digits and say NaN; `said` is what they are."""
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
        raise LossError(row, "int", "it has thousands of digits, more than any number that is stored.") from None


def _text(value: Decimal | None, *, whole: bool) -> str | None:
    """Return a Decimal as text; one that is a whole number without a point, as far as whole numbers reach."""
    if value is None:
        return None
    is_whole = whole and value.is_finite() and value.adjusted() < _WHOLE_DIGITS and value == value.to_integral_value()
    return str(int(value)) if is_whole else str(value)


def _refuse_other_times(values: Sequence[Any]) -> None:
    """Refuse times of pandas that no datetime can tell: as one they have another year, or no nanoseconds."""
    for row, value in enumerate(values):
        if value is not None and type(value) is not datetime:
            if not date.min.year <= value.year <= date.max.year:
                raise LossError(row, type(value).__name__, f"{value} is outside of the years 1 to 9999.")
            if getattr(value, "nanosecond", 0):
                raise LossError(row, type(value).__name__, f"{value} has nanoseconds, and microseconds are stored.")


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
