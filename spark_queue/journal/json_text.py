"""JSON as it is read: no number loses digits, no key is dropped for its repeat, and what is no JSON is refused by its row.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

from spark_queue.errors import CallerError
from spark_queue.journal.nested import Column

#: Most digits of a whole number in JSON lines; Python reads no more than some thousands.
_WHOLE_DIGITS = 1_000

_LINES = "one object per line"


def line_text(line: str | bytes, number: int) -> str:
    """Return a line as text.

    Raises
    ------
    CallerError
        ROWS_UNREADABLE.
    """
    try:
        return line if isinstance(line, str) else line.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        raise CallerError("ROWS_UNREADABLE", what=f"line {number}", expected=f"UTF-8 ({reason})") from None


def decoded(line: str, number: int) -> Any:
    """Return what a line of JSON says.

    Raises
    ------
    CallerError
        ROWS_UNREADABLE.
    """
    try:
        value = _VALUES.decode(line)
    except (ValueError, RecursionError) as reason:
        raise CallerError("ROWS_UNREADABLE", what=f"line {number}", expected=_expected(line, reason)) from None
    if isinstance(value, list):
        raise CallerError("ROWS_UNREADABLE", what=f"line {number}, an array", expected=f"{_LINES}, not an array of them,")
    return value


def check_bodies(bodies: Column, first: int) -> None:
    """Refuse a body that is no JSON, on every way in: an expression would find nothing in it, and say nothing.

    Raises
    ------
    CallerError
        ROWS_UNREADABLE.
    """
    # One by one, since bodies may be large.
    for row, body in enumerate(bodies, start=first):
        text = body.as_py()
        try:
            if text is not None:
                _TEXTS.decode(text)
        except (ValueError, RecursionError) as reason:
            raise CallerError("ROWS_UNREADABLE", what=f"row {row}", expected=_expected(text, reason), row=row) from None


def _expected(text: str, reason: Exception) -> str:
    """Say what a text should be; one that only opens an array or an object is the first line of a file that is one."""
    return f"{f'{_LINES}, as JSON' if text.strip() in ('[', '{') else 'JSON'} ({reason})"


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
    if len(digits) > _WHOLE_DIGITS:
        raise ValueError(f"a whole number of {len(digits):,} digits is more than any column holds")
    return int(digits)


def _with_point(number: str) -> Decimal:
    try:
        return Decimal(number)
    except ArithmeticError:
        raise ValueError(f"the exponent of {number[:_WHOLE_DIGITS]} is more than any column holds") from None


#: Reads a line: numbers with a point keep all of their digits.
_VALUES = json.JSONDecoder(parse_int=_whole, parse_float=_with_point, parse_constant=_constant, object_pairs_hook=_once)

#: Reads a body, of which nobody wants the numbers: they stay texts, however long.
_TEXTS = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_constant, object_pairs_hook=_once)
