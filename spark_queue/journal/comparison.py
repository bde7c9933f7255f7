"""What a value became, compared with what it was: numbers by their digits, times as whole numbers, texts as Python reads them.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from spark_queue.journal.kinds import TIMES, TypeKind, kind_of

#: More characters than any number has that a DOUBLE tells digit by digit.
_NUMBER_CHARACTERS = 1_100

#: Units of time, by how many make a day.
UNITS_OF_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}

#: What two texts of one number may differ in, and by what it is replaced.
_SPELLINGS = ((r"^\+", ""), (r"^(-?)0+([0-9])", r"\1\2"), (r"^([^eE]*\.[0-9]*?)0+$", r"\1"), (r"\.$", ""))


def changed(column: Any, texts: Any, done: Any, timezone: str | None) -> Iterator[int]:
    """Yield the rows whose values are not what they were; only those that are written in another way are compared one by one."""
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
    """Return whether a value is what was given, by Python's reading of both."""
    try:
        if want is TypeKind.TRUTH:
            return value is (text.lower() in ("true", "1"))
        if want is TypeKind.POINT:
            return _tells(value, text)
        # A number with a point is exactly what it is where it is whole, and what its text says among DECIMALs.
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
    """Return whether a number is what a text says: written with as many digits it is that text."""
    if len(text) > _NUMBER_CHARACTERS:
        return False
    said = Decimal(text)
    if said.is_nan() or not np.isfinite(number):
        return (said.is_nan() and np.isnan(number)) or said == number
    digits = len(said.as_tuple().digits)
    return said in (Decimal(f"{number:.{digits - 1}e}"), Decimal(repr(number)))
