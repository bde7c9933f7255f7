"""How the texts of Spark options are read: each parser raises ValueError with what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from spark_queue.core.definitions.keys import valid_name
from spark_queue.errors import nearest
from spark_queue.settings.timestamps import parse_timestamp, to_ms

#: Most digits of a whole number of 63 bits.
_DIGITS = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a message type's log: where a topic read starts (inclusive) or ends (exclusive)."""

    kind: Literal["earliest", "latest", "bookmark", "timestamp"]
    #: The bookmark, or milliseconds since 1970 UTC; 0 for earliest and latest.
    value: int = 0


def parse_bookmark(value: str) -> Position:
    """Parse where a read starts or ends: a bookmark, or either end of the log."""
    lowered = value.strip().lower()
    if lowered == "earliest":
        return Position(kind="earliest")
    if lowered == "latest":
        return Position(kind="latest")
    try:
        return Position(kind="bookmark", value=whole(0)(lowered))
    except ValueError as expected:
        raise ValueError(f"earliest, latest or a bookmark ({expected})") from None


def parse_position_time(value: str) -> Position:
    """Parse the time at which a read starts or ends."""
    return Position(kind="timestamp", value=to_ms(parse_timestamp(value)))


def parse_text(value: str) -> str:
    """Parse a text that is not empty."""
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


def parse_name(value: str) -> str:
    """Parse a name that follows the topic grammar."""
    if not valid_name(value):
        raise ValueError("a name: 1 to 249 characters of A-Z a-z 0-9 . _ -")
    return value


def parse_columns(value: str) -> tuple[str, ...]:
    """Parse names with commas between them."""
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise ValueError("column names separated by commas")
    return names


def parse_compare(value: str) -> str:
    """Parse how repeats of a write are compared."""
    lowered = value.strip().lower()
    if lowered not in ("rows", "version"):
        raise ValueError("rows or version")
    return lowered


def parse_boolean(value: str) -> bool:
    """Parse true or false, in any case."""
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.strip().lower() == "true"


def whole(least: int) -> Callable[[str], int]:
    """Return the parser of a whole number from some number on."""

    def parse(value: str) -> int:
        # Python refuses to read thousands of digits, in words that are none of ours.
        if not value.strip().isdecimal() or len(value.strip()) > _DIGITS or not least <= int(value) < 2**63:
            raise ValueError(f"a whole number from {least}, of at most 63 bits")
        return int(value)

    return parse


def one_of(*allowed: str) -> Callable[[str], str]:
    """Return the parser of a text that is one of some."""

    def parse(value: str) -> str:
        if value.lower() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}.{nearest(value, allowed)}")
        return value.lower()

    return parse
