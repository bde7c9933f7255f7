"""The form of counts, sizes, times and values on pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from spark_queue.errors import ConfigError
from spark_queue.settings.shown import shown
from spark_queue.settings.timestamps import parse_moment, to_ms
from spark_queue.views.quantities import NONE

#: Characters of a body or an error that a table shows; the page of one message shows it whole.
CELL_CHARACTERS = 200

#: Most characters of one value that any page shows.
_WHOLE_CHARACTERS = 100_000

_CODE = re.compile(r"`([^`]+)`")

#: Digits of a moment in whole seconds, from the year 2001 on; a date may have eight.
_SECONDS_DIGITS = (10, 11)
_WITHOUT_OFFSET = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,3})?)?", re.ASCII)


def count(value: int | None) -> str:
    """Return a number with its thousands apart."""
    return NONE if value is None else f"{value:,}"


def coded(text: str) -> Markup:
    """Return a text with its parts in backquotes shown as code: commands to type, in the texts of errors and alarms."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - the text was escaped before.


def instant(at_ms: int | None) -> str:
    """Return a time in UTC to the second."""
    return NONE if not at_ms else f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}"


def clock_time(at_ms: int) -> str:
    """Return the time of a day in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%H:%M:%S}"


def written_time(at_ms: int) -> str:
    """Return a time in UTC as people write it."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return f"{at.day} {at:%B %Y at %H:%M:%S} UTC"


def machine_time(at_ms: int) -> str:
    """Return a time as links and attributes carry it."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def field_time(at_ms: int) -> str:
    """Return a time in UTC in the form of a field for a time."""
    return machine_time(at_ms).removesuffix("Z").removesuffix(".000")


def moment_ms(text: str | None, *, key: str = "at") -> int | None:
    """Read a moment of an address: whole seconds since 1970, as a slider gives them, a date, or an ISO-8601 time; None for none.

    A time is UTC where it does not say otherwise: so browsers write the value of a field for a time.
    """
    text = (text or "").strip()
    if not text:
        return None
    if text.isdecimal() and len(text) in _SECONDS_DIGITS:
        return int(text) * 1_000
    try:
        at_ms = to_ms(parse_moment(f"{text}Z" if _WITHOUT_OFFSET.fullmatch(text) else text))
    except (ValueError, OverflowError) as reason:
        raise ConfigError("BAD_VALUE", key=key, where="the address", value=text, expected=f"a date or {reason}") from None
    if at_ms < 0:
        # Charts reach back from it, and the calendar begins with the year 1.
        raise ConfigError("BAD_VALUE", key=key, where="the address", value=text, expected="a time since 1970")
    return at_ms


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
    text = NONE if value is None else shown(value)
    return text if len(text) <= _WHOLE_CHARACTERS else f"{text[:_WHOLE_CHARACTERS]}… ({len(text):,} characters)"


def cell(value: Any, most: int = CELL_CHARACTERS) -> str:
    """Return a value of a message, as much of it as a table can carry."""
    text = NONE if value is None else shown(value)
    return text if len(text) <= most else text[: most - 1] + "…"
