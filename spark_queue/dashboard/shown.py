"""How pages write counts, sizes, times and values; `figure_texts` has what the command line writes, too."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from spark_queue.views.figure_texts import NONE

#: Characters of a body or an error that a table shows; the page of one message shows it whole.
CELL_CHARACTERS = 200

#: Most characters of one value that any page shows.
_WHOLE_CHARACTERS = 100_000


def count(value: int | None) -> str:
    """Return a number with its thousands apart."""
    return NONE if value is None else f"{value:,}"


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
