"""Columns of one kind of values in another: made by Arrow, and never believed before they were compared with what was given.

Arrow's casts wrap numbers around, read digits as hexadecimal, and take any year. So what may be cast is said before, by the digits
of a value, and what came of it must say again what was given.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from spark_queue.journal.comparison import UNITS_OF_A_DAY, changed
from spark_queue.journal.kinds import NUMBERS, TIMES, TypeKind, kind_of
from spark_queue.journal.nested import Column, LossError, first_row

#: An error quotes the value, which may be a body of megabytes.
_REASON_CHARACTERS = 400

#: What a number looks like; Python's reader of numbers takes more, such as blanks, lines and digits of other scripts.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)

#: What Arrow writes behind a time, and nobody has said.
_ENDING_ZEROS = re.compile(r"\.0+(?=Z?$)")

#: The years that Spark, Python and SQL know are 1 to 9999: first and last day, by days since 1970.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def convert(column: Column, wanted: Any, timezone: str | None) -> Column:
    """Return a column in another type that can tell such values (`kinds.refusal`), where all of them stay what they are.

    Raises
    ------
    LossError
        Of the first row whose value would not be what it was.
    """
    texts: Any = column if kind_of(column.type) is TypeKind.BYTES else column.cast(pa.string())

    def make(rows: slice) -> Column:
        return _made(column[rows], texts[rows], wanted, timezone)

    try:
        done = make(slice(None))
    except LossError:
        raise
    except (pa.ArrowException, ValueError):
        row, reason = _first_failing(len(column), make)
        raise LossError(row, str(column.type), reason) from None
    _check_years(done, told=lambda row: str(texts[row]))
    lost = next(changed(column, texts, done, timezone), None)
    if lost is not None:
        told = _start(_ENDING_ZEROS.sub("", str(texts[lost])))
        raise LossError(lost, str(column.type), sentence(f"{told} would be stored as {done[lost].as_py()}"))
    return done


def check(column: Column) -> None:
    """Refuse values that their own type does not have, and that no reader could take.

    Raises
    ------
    LossError
        Of the first row with a time outside of the years 1 to 9999, a text that is no UTF-8, or a DECIMAL with too many digits.
    """
    _check_years(column, told=lambda row: far_time(column[row]))
    try:
        column.validate(full=True)
    except (pa.ArrowException, ValueError):
        row, reason = _first_failing(len(column), lambda rows: column[rows].validate(full=True))
        raise LossError(row, str(column.type), reason) from None


def far_time(value: Any) -> str:
    """Return a time as text, also where Python has no such year."""
    if types.is_date64(value.type):
        return str(np.datetime64(value.value, "ms"))
    return str(np.datetime64(value.value, "D" if types.is_date(value.type) else value.type.unit))


def sentence(reason: BaseException | str) -> str:
    """Return an Arrow error as one line, without its advice to programmers of Arrow, and without most of a long value."""
    text = " ".join(str(reason).split()).partition(" If these timestamps")[0]
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
        raise LossError(row, str(kind), f"{told(row)} is outside of the years 1 to 9999.")


def _made(column: Any, texts: Any, wanted: Any, timezone: str | None) -> Column:
    """Make a column of another type, by casts that are not trusted with values too large for it."""
    have, want = kind_of(column.type), kind_of(wanted)
    made: Column
    if want is TypeKind.DECIMAL:
        return _decimals(texts, wanted, found=str(column.type))
    if want is TypeKind.WHOLE and have is TypeKind.TEXT:
        _refuse_unless(pc.match_substring_regex(texts, "^-?[0-9]+$"), texts, "no whole number, in digits from 0 to 9.")
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


def _refuse_unless(fits: Any, texts: Any, reason: str) -> None:
    row = first_row(pc.invert(fits))
    if row is not None:
        raise LossError(row, str(texts.type), f"'{_start(texts[row])}' is {reason}")


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
        raise ValueError(f"it has more than {places} digits after the point, and to drop them is data loss") from None


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
    """Return the first row that Arrow does not take, and what it says of it."""
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
