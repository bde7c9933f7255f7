"""How pages write numbers, times and values."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from typing import Any

#: Nothing to say.
NONE = "–"

#: Characters of a body or an error that a table shows; the page of one message shows it whole.
CELL_CHARACTERS = 200

#: Most characters of one value that any page shows.
_WHOLE_CHARACTERS = 100_000

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def count(value: int | None) -> str:
    """Return a number with its thousands apart."""
    return NONE if value is None else f"{value:,}"


def rate(per_second: float | None) -> str:
    """Return a rate: messages each second, or each minute where it is slow."""
    if per_second is None or math.isnan(per_second):
        return NONE
    if per_second == 0:
        return "0"
    if per_second >= 100:
        return f"{per_second:,.0f}/s"
    if per_second >= 1:
        return f"{per_second:,.1f}/s"
    return f"{per_second * 60:,.2g}/min" if per_second * 60 >= 0.1 else f"{per_second * 3600:,.2g}/h"


def duration(seconds: float | None) -> str:
    """Return a time span in its two largest units."""
    if seconds is None or math.isnan(seconds):
        return NONE
    if abs(seconds) < 10:
        return f"{seconds:.1f} s"
    sign, left = ("−" if seconds < 0 else ""), abs(round(seconds))
    for index, (length, unit) in enumerate(_STEPS):
        if left >= length:
            told = f"{sign}{left // length} {unit}"
            if index + 1 < len(_STEPS):
                smaller, name = _STEPS[index + 1]
                told += f" {left % length // smaller} {name}"
            return told
    return "0 s"


def instant(at_ms: int | None) -> str:
    """Return a time in UTC to the second."""
    return NONE if not at_ms else f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}"


def machine_time(at_ms: int) -> str:
    """Return a time as links and attributes carry it."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(size_bytes: int | None) -> str:
    """Return a size in binary units."""
    if size_bytes is None:
        return NONE
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def body(value: Any) -> str:
    """Return a value of a message, as much of it as a page can carry."""
    text = _plain(value)
    return text if len(text) <= _WHOLE_CHARACTERS else f"{text[:_WHOLE_CHARACTERS]}… ({len(text):,} characters)"


def cell(value: Any) -> str:
    """Return a value of a message, as much of it as a table can carry."""
    text = _plain(value)
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


def _plain(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return _text_of(value)
    if isinstance(value, dict | list):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(value)


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64: {base64.b64encode(value[:_WHOLE_CHARACTERS]).decode()}"
