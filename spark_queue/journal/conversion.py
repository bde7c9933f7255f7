"""Columns of one kind of values in another: made by Arrow, and never believed before they were compared with the given ones.

Arrow's casts wrap numbers around, read digits as hexadecimal, and accept any year. So casts are permitted before, by the digits
of a value, and the result must give the same value again.

Runs on executors too, so it imports pyarrow and nothing heavier.

Structs, arrays and maps of their parts, and the name of the row when a part cannot be made.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.journal.sql_types import sql_type, with_sql_type

Column: TypeAlias = "pa.Array[Any]"


class LossError(ValueError):
    """A value cannot be written in another type."""

    def __init__(self, row: int, found: str, reason: str) -> None:
        super().__init__(reason)
        #: The first such row, and its value or type.
        self.row = row
        self.found = found
        self.reason = reason


def resolve_fields(names: Iterable[Any], wanted: Any, *, row: int, found: str) -> dict[str, str]:
    """Return the declared field of each name."""
    declared = ColumnNames(field.name for field in fields_of(wanted))
    resolved: dict[str, str] = {}
    for name in names:
        field = declared.find(str(name))
        if field is None:
            raise LossError(row, found, f"the message type has no field '{name}'.")
        if field in resolved.values():
            raise LossError(row, found, f"field '{field}' is there twice; names are case-insensitive.")
        resolved[name] = field
    return resolved


def struct_array(members: dict[str, Column], wanted: Any, *, nulls: Any) -> Column:
    """Make structs of their fields; those that are left out are NULL."""
    columns: list[Column] = []
    for field in fields_of(wanted):
        column = members.get(field.name)
        columns.append(pa.nulls(len(nulls), field.type) if column is None else column)
        if not field.nullable:
            row = first_row(pc.and_not(columns[-1].is_null(), nulls))
            if row is not None:
                raise LossError(row, f"NULL in field '{field.name}'", "there is no value to store.")
    made: Column = pa.StructArray.from_arrays(columns, fields=list(fields_of(wanted)), mask=nulls)
    return made


def list_array(lengths: Any, wanted: Any, elements: Callable[[], Column]) -> Column:
    """Make arrays of their lengths, NaN for NULL, and of all of their elements."""
    with_place = _OfRows(lengths)
    made: Column = pa.ListArray.from_arrays(with_place.offsets(), with_place.made(elements), type=wanted)
    return made


def map_array(lengths: Any, keys: Callable[[], Column], items: Callable[[], Column]) -> Column:
    """Make maps of their lengths, NaN for NULL, and of all of their keys and items."""
    with_place = _OfRows(lengths)
    own = with_place.made(keys)
    with_place.refuse_unless_keys(own)
    made: Column = pa.MapArray.from_arrays(with_place.offsets(), own, with_place.made(items))
    return made


class _OfRows:
    """Which elements belong to which row."""

    def __init__(self, lengths: Any) -> None:
        given: NDArray[np.float64] = np.asarray(lengths, dtype=np.float64)
        self._nulls = np.isnan(given)
        self._ends = np.cumsum(np.where(self._nulls, 0, given)).astype(np.int32)

    def offsets(self) -> Any:
        offsets = np.concatenate([np.zeros(1, np.int32), self._ends])
        return pa.array(offsets, mask=np.append(self._nulls, False))

    def made(self, elements: Callable[[], Column]) -> Column:
        """Make elements; a loss in one is a loss in its row."""
        try:
            return elements()
        except LossError as lost:
            raise LossError(self._row_of(lost.row), lost.found, lost.reason) from None

    def refuse_unless_keys(self, elements: Any) -> None:
        """Refuse keys that are NULL, or twice in one map: Spark makes no such map, and expressions would fail on it."""
        null = first_row(elements.is_null())
        if null is not None:
            raise LossError(self._row_of(null), "a map", "one of its keys is NULL.")
        # 0.0 and -0.0 are one key.
        elements = pc.add(elements, pa.scalar(0.0, elements.type)) if types.is_floating(elements.type) else elements
        texts: Any = pa.array([repr(each) for each in elements.to_pylist()]) if types.is_nested(elements.type) else elements
        rows = np.searchsorted(self._ends, np.arange(len(elements)), side="right")
        keys = rows * len(elements) + texts.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        by_key = np.argsort(keys, kind="stable")
        twice = by_key[1:][np.diff(keys[by_key]) == 0]
        if len(twice):
            place = int(twice.min())
            raise LossError(int(rows[place]), "a map", f"key {elements[place].as_py()!r:.200} is there twice.")

    def _row_of(self, place: int) -> int:
        return int(np.searchsorted(self._ends, place, side="right"))


def first_row(mask: Any) -> int | None:
    """Return the first row where something holds; None where it never does."""
    row = int(pc.index(mask, pa.scalar(value=True)).as_py())
    return None if row < 0 else row


def fields_of(kind: Any) -> Iterator[Any]:
    """Return the fields of a struct."""
    return (kind.field(index) for index in range(kind.num_fields))


class TypeKind(StrEnum):
    """Types that are alike, under the name that people give them."""

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

#: Declared type of a column -> types that are accepted for it, beside texts and itself.
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

#: The fault of a number where a time is wanted.
UNIT = "a number may count days, seconds, milliseconds or microseconds."

#: The fault of a time without an offset, where an instant is wanted.
SEVERAL_INSTANTS = "it could mean several instants."
_NAIVE = f"the value has no time zone, so {SEVERAL_INSTANTS}"
_INSTANTS = "the value is an instant, which clocks of different time zones read differently."
_WRITTEN = "it can be written as text in several ways."


def refusal(found: pa.DataType, wanted: pa.DataType, *, timezone: str | None = None) -> str | None:
    """Return the reason why no value of one type can be written in another, neither of them nested; None where some can."""
    have, want = kind_of(found), kind_of(wanted)
    if have is None or want is None:
        return f"{sql_type(found)} has no values of type {want or sql_type(wanted)}."
    if have in (want, TypeKind.TEXT) or have in _ALLOWED[want] or (want is TypeKind.INSTANT and have is TypeKind.WALL and timezone):
        return None
    if want in TIMES and have in NUMBERS:
        return UNIT
    if want is TypeKind.INSTANT and have in TIMES:
        return _NAIVE
    if have is TypeKind.INSTANT and want in TIMES:
        return _INSTANTS
    return _WRITTEN if want is TypeKind.TEXT else f"{have} has no values of type {want}."


def kind_of(kind: pa.DataType) -> TypeKind | None:
    """Return the kind of a type; None for nested types, and for those that no column can be declared as."""
    if types.is_timestamp(kind):
        return TypeKind.WALL if kind.tz is None else TypeKind.INSTANT
    return _KINDS.get(kind.id)


#: By the number that Arrow gives to a type, whatever its parameters are.
_KINDS: Mapping[int, TypeKind] = {
    each.id: kind
    for kind, types_of_kind in {
        TypeKind.TRUTH: (pa.bool_(),),
        TypeKind.WHOLE: (
            pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        ),
        TypeKind.POINT: (pa.float16(), pa.float32(), pa.float64()),
        TypeKind.DECIMAL: (pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)),
        TypeKind.TEXT: (pa.string(), pa.large_string(), pa.string_view()),
        TypeKind.BYTES: (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)),
        TypeKind.DATE: (pa.date32(), pa.date64()),
    }.items()
    for each in types_of_kind
}  # fmt: skip


#: More characters than any number has that a DOUBLE keeps digit by digit.
_NUMBER_CHARACTERS = 1_100

#: Units of time, by how many make a day.
UNITS_OF_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}

#: Differences in spelling between texts of one number, each with its replacement.
_SPELLINGS = ((r"^\+", ""), (r"^(-?)0+([0-9])", r"\1\2"), (r"^([^eE]*\.[0-9]*?)0+$", r"\1"), (r"\.$", ""))


def changed(column: Any, texts: Any, done: Any, timezone: str | None) -> Iterator[int]:
    """Yield the rows with changed values; only those that are written in another way are compared one by one."""
    have, want = kind_of(column.type), kind_of(done.type)
    if want in (TypeKind.TEXT, TypeKind.BYTES):
        # The same bytes, or the text of the value.
        return
    kept = done
    if want is TypeKind.INSTANT and have is TypeKind.WALL:
        kept = pc.local_timestamp(done.cast(pa.timestamp("us", timezone)))
    elif want is have is TypeKind.POINT and column.type.bit_width < done.type.bit_width:
        kept = done.cast(column.type)
    if have in TIMES:
        yield from np.flatnonzero(_differs(*_ticks(column, kept))).tolist()
        return
    if want in TIMES:
        moments = [_moment(text, done.type, timezone) for text in texts.to_pylist()]
        yield from np.flatnonzero(_differs(pa.array(moments, done.type), done)).tolist()
        return
    kept = kept.cast(pa.string())
    rows = np.flatnonzero(_differs(texts, kept))
    rows = rows[_differs(*(_spelled(each.take(pa.array(rows))) for each in (texts, kept)))]
    chosen: Any = pa.array(rows)
    parts = (column.take(chosen), _spelled(texts.take(chosen)), done.take(chosen))
    for row, given, text, value in zip(rows.tolist(), *(part.to_pylist() for part in parts), strict=True):
        if not _is_kept(given, text, value, want):
            yield row


def _ticks(given: Any, kept: Any) -> Iterator[Any]:
    """Yield two columns of times as whole numbers of one unit."""
    days = [
        1 if types.is_date32(each.type) else UNITS_OF_A_DAY["ms" if types.is_date64(each.type) else each.type.unit]
        for each in (given, kept)
    ]
    for column, units in zip((given, kept), days, strict=True):
        raw = column.cast(pa.int32()).cast(pa.int64()) if types.is_date32(column.type) else column.cast(pa.int64())
        yield pc.multiply(raw, pa.scalar(max(days) // units))


def _differs(given: Any, kept: Any) -> NDArray[np.bool_]:
    same: Any = pc.equal(given, kept)
    both_null = pc.and_(given.is_null(), kept.is_null())
    alike: NDArray[np.bool_] = pc.or_(same.fill_null(pa.scalar(value=False)), both_null).to_numpy(zero_copy_only=False)
    return ~alike


def _spelled(numbers: Any) -> Any:
    """Return texts of numbers in one spelling, without zeros that say nothing."""
    for pattern, replacement in _SPELLINGS:
        numbers = pc.replace_substring_regex(numbers, pattern, replacement)
    return numbers


def _is_kept(given: Any, text: str, value: Any, want: TypeKind | None) -> bool:
    """Return whether a value is the given one, by Python's reading of both."""
    try:
        if want is TypeKind.TRUTH:
            return value is (text.lower() in ("true", "1"))
        if want is TypeKind.POINT:
            return _tells(value, text)
        # A number with a point has its exact value where it is whole, and that of its text among DECIMALs.
        return value is not None and Decimal(given if want is TypeKind.WHOLE else text) == value
    except (ValueError, ArithmeticError):
        return False


def _moment(text: str | None, kind: Any, timezone: str | None) -> dt.date | None:
    """Return the time that a text says, by Python's reading of it; None where it says none of this kind."""
    try:
        moment = None if text is None else dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment is None or types.is_date(kind):
        return moment if moment is None else moment.date()
    if moment.tzinfo is None and timezone is not None and kind.tz is not None:
        return moment.replace(tzinfo=zoneinfo.ZoneInfo(timezone))
    return moment if (moment.tzinfo is None) == (kind.tz is None) else None


def _tells(number: float, text: str) -> bool:
    """Return whether a number is that of a text: written with as many digits it is that text."""
    if len(text) > _NUMBER_CHARACTERS:
        return False
    said = Decimal(text)
    if said.is_nan() or not np.isfinite(number):
        return (said.is_nan() and np.isnan(number)) or said == number
    digits = len(said.as_tuple().digits)
    return said in (Decimal(f"{number:.{digits - 1}e}"), Decimal(repr(number)))


#: An error quotes the value, which may be a body of megabytes.
_REASON_CHARACTERS = 400

#: A number; Python's reader of numbers accepts more, such as blanks, lines and digits of other scripts.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)

#: Zeros that Arrow writes behind a time, although nobody has said them.
_ENDING_ZEROS = re.compile(r"\.0+(?=Z?$)")

#: The years that Spark, Python and SQL know are 1 to 9999: first and last day, by days since 1970.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def convert(column: Column, wanted: Any, timezone: str | None) -> Column:
    """Return a column in another type that can hold such values (`refusal`), where all of them stay the same."""

    def make(rows: slice) -> tuple[Any, Column]:
        part = column[rows]
        # A time of an unknown zone has no text.
        texts = part if kind_of(part.type) is TypeKind.BYTES else part.cast(pa.string())
        return texts, _made(part, texts, wanted, timezone)

    try:
        texts, done = make(slice(None))
    except LossError:
        raise
    except (pa.ArrowException, ValueError):
        row, reason = _first_failing(len(column), make)
        text = column[row].as_py() if kind_of(wanted) is TypeKind.INSTANT and kind_of(column.type) is TypeKind.TEXT else ""
        if _NUMBER.fullmatch(text):
            reason = UNIT
        elif timezone is None and _is_naive(text):
            reason = f"'{_start(column[row])}' has no zone offset, so {SEVERAL_INSTANTS}"
        raise LossError(row, sql_type(column.type), reason) from None
    _check_years(done, told=lambda row: str(texts[row]))
    lost = next(changed(column, texts, done, timezone), None)
    if lost is not None:
        told = _start(_ENDING_ZEROS.sub("", str(texts[lost])))
        raise LossError(lost, sql_type(column.type), sentence(f"{told} would be stored as {done[lost].as_py()}"))
    return done


def _is_naive(text: str) -> bool:
    """Return whether a text says a time, and no offset."""
    try:
        return dt.datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False


#: Names of the units in which numbers may count since 1970 UTC, and how many microseconds each is.
EPOCHS = {"seconds": 1_000_000, "milliseconds": 1_000}

#: A number as a text, with a part of one or without.
_COUNT, _WHOLE_COUNT = r"^[+-]?[0-9]+(\.[0-9]*)?$", r"^-?[0-9]{1,18}$"


def since_epoch(column: Any, epoch: str, *, others: Callable[[Any], Column]) -> Column:
    """Return instants of numbers and of texts of numbers, which count since 1970 UTC; `others` makes them of other texts."""
    have = kind_of(column.type)
    if have not in NUMBERS and have is not TypeKind.TEXT:
        done: Column = column
        return done
    texts = column.cast(pa.string())
    counts, whole = (
        pc.match_substring_regex(texts, pattern).fill_null(pa.scalar(value=False)) for pattern in (_COUNT, _WHOLE_COUNT)
    )
    if have is not TypeKind.TEXT:
        # Also of a float whose text has an exponent.
        counts = column.is_valid()
    numbers = pc.if_else(whole, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    micros, limit = EPOCHS[epoch], pa.scalar(2**62 // EPOCHS[epoch], pa.int64())
    fits = pc.less_equal(pc.abs(numbers), limit).fill_null(pa.scalar(value=False))
    made: Any = pc.multiply(pc.if_else(fits, numbers, None), pa.scalar(micros, pa.int64())).cast(pa.timestamp("us", "UTC"))
    rows = np.flatnonzero(pc.and_(counts, pc.invert(fits)).to_numpy(zero_copy_only=False)).tolist()
    if rows:
        exact = [_exact_instant(row, str(texts[row]), micros, sql_type(column.type)) for row in rows]
        mask = np.zeros(len(column), dtype=np.bool_)
        mask[rows] = True
        made = pc.replace_with_mask(made, pa.array(mask), pa.array(exact, pa.int64()).cast(pa.timestamp("us", "UTC")))
    _check_years(made, told=lambda row: str(texts[row]))
    rest = pc.if_else(counts, pa.scalar(None, column.type), column)
    return made if rest.null_count == len(rest) else pc.coalesce(made, others(rest))


def _exact_instant(row: int, text: str, micros: int, found: str) -> int:
    """Return the microseconds since 1970 UTC of a number that has a part behind its point, or is too large for an instant."""
    try:
        count = Decimal(text) * micros
        if not count.is_finite():
            raise LossError(row, found, f"{_start(text)} is no time.")
        if count != count.to_integral_value():
            raise LossError(row, found, f"{_start(text)} has a fraction of a microsecond, but only microseconds are stored.")
        if not abs(count) < 2**62:
            raise LossError(row, found, f"{_start(text)} is outside of the years 1 to 9999.")
    except ArithmeticError:
        raise LossError(row, found, f"{_start(text)} is not a number counted from 1970.") from None
    return int(count)


def check(column: Column) -> None:
    """Refuse values that their own type does not have, and that no reader could read."""
    _check_years(column, told=lambda row: far_time(column[row]))
    try:
        column.validate(full=True)
    except (pa.ArrowException, ValueError):
        row, reason = _first_failing(len(column), lambda rows: column[rows].validate(full=True))
        raise LossError(row, sql_type(column.type), reason) from None


def far_time(value: Any) -> str:
    """Return a time as text, also where Python has no such year."""
    if types.is_date64(value.type):
        return str(np.datetime64(value.value, "ms"))
    return str(np.datetime64(value.value, "D" if types.is_date(value.type) else value.type.unit))


def sentence(reason: BaseException | str) -> str:
    """Return an Arrow error as one line, without its advice to programmers of Arrow, and without most of a long value."""
    text = with_sql_type(" ".join(str(reason).split()).partition(" If these timestamps")[0])
    return f"{text if len(text) <= _REASON_CHARACTERS else f'{text[:_REASON_CHARACTERS]}…'}".rstrip(".") + "."


def _start(text: object) -> str:
    """Return a text, or where it is long its first characters."""
    told = str(text)
    return told if len(told) <= _REASON_CHARACTERS // 2 else f"{told[: _REASON_CHARACTERS // 2]}…"


def _check_years(column: Any, *, told: Callable[[int], str]) -> None:
    kind = column.type
    if types.is_date32(kind):
        units, raw = 1, column.cast(pa.int32())
    elif kind_of(kind) in TIMES and (types.is_date64(kind) or kind.unit != "ns"):
        # Nanoseconds since 1970 reach no further than the year 2262.
        units, raw = UNITS_OF_A_DAY["ms" if types.is_date64(kind) else kind.unit], column.cast(pa.int64())
    else:
        return
    first, end = (pa.scalar(days * units, raw.type) for days in (_FIRST_DAY, _LAST_DAY + 1))
    row = first_row(pc.or_(pc.less(raw, first), pc.greater_equal(raw, end)))
    if row is not None:
        raise LossError(row, sql_type(kind), f"{told(row)} is outside of the years 1 to 9999.")


def _made(column: Any, texts: Any, wanted: Any, timezone: str | None) -> Column:
    """Make a column of another type, by casts that are not trusted with values too large for it."""
    have, want = kind_of(column.type), kind_of(wanted)
    if have is TypeKind.TEXT and want in (TypeKind.WALL, TypeKind.INSTANT):
        column = _in_microseconds(column)
    if have is TypeKind.DECIMAL and column.type.bit_width < 128:
        # Of small ones Arrow makes no whole numbers.
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    made: Column
    if want is TypeKind.DECIMAL:
        return _decimals(texts, wanted, found=sql_type(column.type))
    if want is TypeKind.WHOLE and have is TypeKind.TEXT:
        _refuse_other_digits(texts)
    if want is TypeKind.INSTANT and timezone is not None and have is not TypeKind.INSTANT:
        made = _zoned(column, timezone).cast(wanted)
    elif (
        have in NUMBERS
        and want in (TypeKind.POINT, TypeKind.TRUTH)
        and (have is not want or column.type.bit_width > wanted.bit_width)
    ):
        made = texts.cast(wanted)
    else:
        made = column.cast(wanted)
    return made


#: A whole number, and one that is written as a float is.
_WHOLE, _POINT_ZERO = "^-?[0-9]+$", re.compile(r"-?[0-9]+[.]0+")


def _refuse_other_digits(texts: Any) -> None:
    row = first_row(pc.invert(pc.match_substring_regex(texts, _WHOLE)))
    if row is None:
        return
    reason = "no whole number, in digits from 0 to 9."
    if _POINT_ZERO.fullmatch(str(texts[row])):
        reason = (
            'written as a float. So pandas writes whole numbers of a column with gaps: read that column with dtype="Int64", or '
            'cast it with astype("Int64"), before you write it.'
        )
    raise LossError(row, sql_type(texts.type), f"'{_start(texts[row])}' is {reason}")


#: Digits of a time behind its microseconds, and the offset that may follow.
_FINER = r"([0-9]{2}:[0-9]{2}[.][0-9]{6})([0-9]+)(Z|[+-][0-9:]+)?$"


def _in_microseconds(texts: Any) -> Any:
    """Return texts of times without zeros behind the microseconds, of which Arrow knows nothing; other digits are refused."""
    if not pc.any(pc.match_substring_regex(texts, _FINER)).as_py():
        return texts
    whole = pc.replace_substring_regex(texts, _FINER.replace("([0-9]+)", "0+"), r"\1\2")
    row = first_row(pc.match_substring_regex(whole, _FINER).fill_null(pa.scalar(value=False)))
    if row is not None:
        raise LossError(row, sql_type(texts.type), f"'{_start(texts[row])}' has nanoseconds, but only microseconds are stored.")
    return whole


def _decimals(texts: Any, wanted: Any, *, found: str) -> Column:
    """Make DECIMALs of texts: Arrow of those whose digits are few, and Python of the others, since Arrow wraps those around."""
    digits, places = wanted.precision - wanted.scale, wanted.scale
    few = pc.match_substring_regex(texts, rf"^[+-]?0?[0-9]{{0,{digits}}}(\.[0-9]{{0,{places}}})?$")
    made: Any = pc.if_else(few, texts, pa.scalar(None, pa.string())).cast(wanted)
    others = pc.invert(few).fill_null(pa.scalar(value=False))
    exact: list[Decimal] = []
    for row in np.flatnonzero(others.to_numpy(zero_copy_only=False)).tolist():
        try:
            exact.append(_decimal(texts[row].as_py(), digits, places))
        except (ValueError, ArithmeticError) as reason:
            told = f"'{_start(texts[row])}' is no DECIMAL({wanted.precision},{places}): {reason}"
            raise LossError(row, found, sentence(told)) from None
    done: Column = pc.replace_with_mask(made, others, pa.array(exact, wanted)) if exact else made
    return done


def _decimal(text: str, digits: int, places: int) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is no number")
    number = Decimal(text)
    if number and number.adjusted() >= digits:
        raise ValueError(f"it has more than {digits} digits before the point")
    try:
        return number.quantize(Decimal((0, (1,), -places)), context=_EXACT)
    except Inexact:
        raise ValueError(f"it has more than {places} digits after the point, and dropping them would be data loss") from None


#: Digits enough for every DECIMAL, and an error where they are not.
_EXACT = Context(prec=80, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact, InvalidOperation])


def _zoned(column: Any, timezone: str) -> Any:
    """Read times without an offset in a zone."""
    if types.is_timestamp(column.type):
        return pc.assume_timezone(column, timezone)
    column = column.cast(pa.string())
    bare = pc.invert(pc.match_substring_regex(column, r"(Z|[+-]\d\d(:?\d\d)?)$"))
    instants = pc.assume_timezone(pc.if_else(bare, column, None).cast(pa.timestamp("us")), timezone)
    offset = pc.if_else(bare, None, column).cast(pa.timestamp("us", tz="UTC"))
    return pc.coalesce(offset, instants.cast(pa.timestamp("us", tz="UTC")))


def _first_failing(count: int, convert: Callable[[slice], object]) -> tuple[int, str]:
    """Return the first row that Arrow refuses, and its reason."""
    first, until = 0, count
    while until - first > 1:
        middle = (first + until) // 2
        try:
            convert(slice(first, middle))
        except (pa.ArrowException, ValueError):
            until = middle
        else:
            first = middle
    try:
        convert(slice(first, until))
    except (pa.ArrowException, ValueError) as reason:
        return first, sentence(reason)
    raise AssertionError("what fails as a whole fails in one row")
