"""Bodies of message type `json`: texts checked, and values made of them."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

from spark_queue.errors import CallerError
from spark_queue.journal.conversion import Column

#: Most digits of a whole number in JSON lines; Python reads no more than some thousands.
_JSON_DIGITS = 1_000

#: The next step for JSON that does not stand on one line for each row.
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
    """Refuse the words that are numbers to Python's reader of JSON."""
    raise ValueError(f'JSON has no {word}; for a DOUBLE write it as the text "{word}"')


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of its members, of which none is dropped for its repeat."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(f"a key occurs twice in one object: {Counter(name for name, _ in pairs).most_common(1)[0][0]}")
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
