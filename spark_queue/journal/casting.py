"""Casting where nothing is lost, at any depth: one rule for every way in (docs/reference/values.md).

Arrow refuses overflow, and lets much else pass: times lose their hours, numbers their digits, instants their meaning. So pairs
of types are allowed here one by one, and numbers go by their text, which says what a value is in every type.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from spark_queue.journal.nested import Column, LossError, fields_of, first_row, list_array, map_array, resolve_fields, struct_array


class _Kind(StrEnum):
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


_NUMBERS = frozenset({_Kind.WHOLE, _Kind.POINT, _Kind.DECIMAL})
_TIMES = frozenset({_Kind.DATE, _Kind.WALL, _Kind.INSTANT})

#: What a column is declared as -> what may be handed over for it, beside texts and itself.
_ALLOWED: dict[_Kind, frozenset[_Kind]] = {
    _Kind.TRUTH: frozenset({_Kind.WHOLE, _Kind.POINT}),
    _Kind.WHOLE: _NUMBERS,
    _Kind.POINT: _NUMBERS,
    _Kind.DECIMAL: _NUMBERS,
    _Kind.TEXT: frozenset({_Kind.BYTES, _Kind.WHOLE, _Kind.TRUTH, _Kind.DATE}),
    _Kind.BYTES: frozenset(),
    _Kind.DATE: frozenset({_Kind.WALL}),
    _Kind.WALL: frozenset({_Kind.DATE}),
    _Kind.INSTANT: frozenset(),
}
_UNIT = "a number does not say whether it counts days, seconds, milliseconds or microseconds."
_NAIVE = "the value has no time zone, so it could mean several instants."
_INSTANTS = "the value is an instant, which clocks of different time zones read differently."
_WRITTEN = "it can be written in several ways, and which text is meant is not said."

#: An error quotes the value, which may be a body of megabytes.
_REASON_CHARACTERS = 400

#: Significant digits that every number of the type keeps, and a size under which it keeps fewer.
_DIGITS: dict[pa.DataType, tuple[int, float]] = {pa.float32(): (6, 1e-30), pa.float64(): (15, 1e-290)}


def cast(column: Column, wanted: Any, *, timezone: str | None = None) -> Column:
    """Cast a column; values stay what they are, or it is refused.

    Parameters
    ----------
    column
        Of any type.
    wanted
        A type that Spark DDL can declare.
    timezone
        Zone of times that carry no offset; None refuses them where an instant is wanted.

    Raises
    ------
    LossError
        Of the first row whose value would not be what it was.
    """
    column = _unwrapped(column)
    if column.type == wanted:
        return column
    if column.null_count == len(column):
        nulls: Column = pa.nulls(len(column), wanted)
        return nulls
    if types.is_struct(wanted):
        return _cast_struct(column, wanted, timezone)
    if types.is_map(wanted):
        return _cast_map(column, wanted, timezone)
    if types.is_list(wanted):
        return _cast_list(column, wanted, timezone)
    reason = refusal(column.type, wanted, timezone=timezone)
    if reason is not None:
        raise _of_first(column, reason)
    convert = _converter(column.type, wanted, timezone)
    try:
        done = convert(column)
    except (pa.ArrowException, ValueError):
        row, reason = _first_failing(column, convert)
        raise LossError(row, str(column.type), reason) from None
    lost = _changed(column, done)
    if lost is not None:
        told, kept = column[lost].as_py(), done[lost].as_py()
        raise LossError(lost, str(column.type), f"{told} would be stored as {kept}.")
    return done


def _of_first(column: Any, reason: str) -> LossError:
    return LossError(first_row(column.is_valid()) or 0, str(column.type), reason)


def refusal(found: pa.DataType, wanted: pa.DataType, *, timezone: str | None = None) -> str | None:
    """Return why no value of one type can be told in another, neither of them nested; None where some can."""
    have, want = _kind(found), _kind(wanted)
    if have is None or want is None:
        return f"{found} has no values of type {want or wanted}."
    if have in (want, _Kind.TEXT) or have in _ALLOWED[want] or (want is _Kind.INSTANT and have is _Kind.WALL and timezone):
        return None
    if want in _TIMES and have in _NUMBERS:
        return _UNIT
    if want is _Kind.INSTANT and have in _TIMES:
        return _NAIVE
    if have is _Kind.INSTANT and want in _TIMES:
        return _INSTANTS
    return _WRITTEN if want is _Kind.TEXT else f"{have} has no values of type {want}."


def _kind(kind: pa.DataType) -> _Kind | None:
    if types.is_timestamp(kind):
        return _Kind.WALL if kind.tz is None else _Kind.INSTANT
    return next((name for is_kind, name in _KINDS if is_kind(kind)), None)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], _Kind], ...] = (
    (types.is_boolean, _Kind.TRUTH),
    (types.is_integer, _Kind.WHOLE),
    (types.is_floating, _Kind.POINT),
    (types.is_decimal, _Kind.DECIMAL),
    (types.is_string, _Kind.TEXT),
    (types.is_large_string, _Kind.TEXT),
    (types.is_string_view, _Kind.TEXT),
    (types.is_binary, _Kind.BYTES),
    (types.is_large_binary, _Kind.BYTES),
    (types.is_binary_view, _Kind.BYTES),
    (types.is_fixed_size_binary, _Kind.BYTES),
    (types.is_date, _Kind.DATE),
)


def _unwrapped(column: Any) -> Column:
    """Return the values of a column that stores each of them once, or whose type is a text by another name."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(column.type, pa.BaseExtensionType) and _kind(column.type.storage_type) is _Kind.TEXT:
        column = column.storage
    unwrapped: Column = column
    return unwrapped


def _converter(found: pa.DataType, wanted: pa.DataType, timezone: str | None) -> Callable[[Any], Column]:
    have, want = _kind(found), _kind(wanted)
    if have in _NUMBERS and want in (_Kind.POINT, _Kind.DECIMAL, _Kind.TRUTH) and have is not want:
        return lambda column: column.cast(pa.string()).cast(wanted)
    if want is _Kind.POINT and found == pa.float64():
        return lambda column: column.cast(pa.string()).cast(wanted)
    if want is _Kind.INSTANT and timezone is not None and have is not _Kind.INSTANT:
        return lambda column: _zoned(column, timezone).cast(wanted)
    return lambda column: column.cast(wanted)


def _zoned(column: Any, timezone: str) -> Any:
    """Read times without an offset in a zone."""
    if types.is_timestamp(column.type):
        return pc.assume_timezone(column, timezone)
    column = column.cast(pa.string())
    bare = pc.invert(pc.match_substring_regex(column, r"(Z|[+-]\d\d(:?\d\d)?)$"))
    instants = pc.assume_timezone(pc.if_else(bare, column, None).cast(pa.timestamp("us")), timezone)
    offset = pc.if_else(bare, None, column).cast(pa.timestamp("us", tz="UTC"))
    return pc.coalesce(offset, instants.cast(pa.timestamp("us", tz="UTC")))


def _first_failing(column: Column, convert: Callable[[Any], Column]) -> tuple[int, str]:
    """Return the first row that Arrow does not cast, and what it says of it."""
    first, until = 0, len(column)
    while until - first > 1:
        middle = (first + until) // 2
        try:
            convert(column[first:middle])
        except (pa.ArrowException, ValueError):
            until = middle
        else:
            first = middle
    try:
        convert(column[first:until])
    except (pa.ArrowException, ValueError) as reason:
        return first, sentence(reason)
    raise AssertionError("what fails as a whole fails in one row")


def sentence(reason: BaseException) -> str:
    """Return an Arrow error as one line, without its advice to programmers of Arrow, and without most of a long value."""
    text = " ".join(str(reason).split()).partition(" If these timestamps")[0]
    return f"{text if len(text) <= _REASON_CHARACTERS else f'{text[:_REASON_CHARACTERS]}…'}".rstrip(".") + "."


def _changed(column: Any, done: Any) -> int | None:
    """Return the first row that Arrow cast, and that is not what it was."""
    if types.is_date(done.type) and not types.is_string(column.type):
        return first_row(pc.not_equal(done.cast(column.type), column))
    if not types.is_floating(done.type) or (types.is_floating(column.type) and column.type.bit_width <= done.type.bit_width):
        return None
    texts: Any = column.cast(pa.string())
    digits, least = _DIGITS[done.type]
    endless = pc.and_(pc.is_inf(done), pc.invert(pc.match_substring(texts, "inf", ignore_case=True)))
    doubtful = pc.or_(pc.greater(pc.utf8_length(texts), pa.scalar(digits)), pc.less(pc.abs(done), pa.scalar(least)))
    same = pc.equal(done.cast(pa.string()), texts)
    looked_at: Any = pc.or_(endless, pc.and_not(doubtful, same))
    rows = np.flatnonzero(looked_at.fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)).tolist()
    return next((row for row in rows if not _tells(done[row].as_py(), texts[row].as_py())), None)


def _tells(number: float, text: str) -> bool:
    """Return whether a number is what a text says: written with as many digits it is that text."""
    said = Decimal(text)
    if not said.is_finite() or not np.isfinite(number):
        return not said.is_finite()
    digits = len(said.as_tuple().digits)
    return said in (Decimal(f"{number:.{digits - 1}e}"), Decimal(repr(number)))


def _cast_struct(column: Any, wanted: Any, timezone: str | None) -> Column:
    if not types.is_struct(column.type):
        raise _of_first(column, "the message type declares fields here.")
    parts = dict(zip([field.name for field in fields_of(column.type)], column.flatten(), strict=True))
    names = resolve_fields(parts, wanted, row=first_row(column.is_valid()) or 0, found=str(column.type))
    members = {names[name]: cast(part, wanted.field(names[name]).type, timezone=timezone) for name, part in parts.items()}
    return struct_array(members, wanted, nulls=column.is_null())


def _cast_list(column: Any, wanted: Any, timezone: str | None) -> Column:
    if not _is_list(column.type):
        raise _of_first(column, "the message type declares an array here.")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return list_array(lengths, wanted, lambda: cast(column.flatten(), wanted.value_type, timezone=timezone))


def _cast_map(column: Any, wanted: Any, timezone: str | None) -> Column:
    if not types.is_map(column.type):
        raise _of_first(column, "the message type declares a map here.")
    pairs = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    keys, items = pairs.flatten().flatten()
    lengths = pc.list_value_length(pairs).to_numpy(zero_copy_only=False)
    return map_array(
        lengths,
        lambda: cast(keys, wanted.key_type, timezone=timezone),
        lambda: cast(items, wanted.item_type, timezone=timezone),
    )


def _is_list(kind: pa.DataType) -> bool:
    return any(is_list(kind) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view))
