"""Values as people are shown them, on terminals and pages: as they can be typed back in a filter or as an argument."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from typing import Any


def shown(value: Any) -> str:
    """Return a value that is there as one text: numbers in full, text as it is, values with parts as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return _text_of(value)
    if isinstance(value, dict | list | tuple):
        return json.dumps(_with_maps(value), default=shown, ensure_ascii=False)
    return str(value)


def _number(value: float) -> str:
    """Return a number as SQL reads it."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN" if math.isnan(value) else repr(value)


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64: {base64.b64encode(value).decode()}"


def _with_maps(value: Any) -> Any:
    """Return parts of a value with objects for maps, which come as pairs."""
    if isinstance(value, dict):
        return {_name(name): _with_maps(part) for name, part in value.items()}
    if isinstance(value, list | tuple) and value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
        return {_name(name): _with_maps(part) for name, part in value}
    return [_with_maps(part) for part in value] if isinstance(value, list | tuple) else value


def _name(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)
