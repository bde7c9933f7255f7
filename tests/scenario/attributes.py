"""Expressions over the attributes that a scenario gives its messages: a handful of comparisons, enough to tell rules apart.

``price > 3 and region = EU`` is a condition, ``price`` a value. What an expression says of a message without that attribute is
NULL: it matches nothing, ranks lowest and has no key. A text where a number is wanted, or a number where a text is, fails.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

#: A message's attributes by name; numbers where they look like numbers.
Attributes = Mapping[str, int | str]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def number_or_text(word: str) -> int | str:
    """Read a word as the value that it looks like."""
    return int(word) if word.lstrip("-").isdecimal() else word.strip("'")


def matches(expression: str | None, attributes: Attributes) -> bool:
    """Return whether a message meets a condition; None is met by all."""
    return expression is None or all(_compare(part.split(), attributes) for part in expression.split(" and "))


def fails(expression: str | None, attributes: Attributes) -> bool:
    """Return whether a condition, or a priority, fails on a message."""
    for words in (part.split() for part in expression.split(" and ")) if expression else ():
        found, wanted = attributes.get(words[0]), number_or_text(words[-1]) if len(words) > 1 else 0
        if found is not None and not isinstance(found, type(wanted)):
            return True
    return False


def priority_of(expression: str | None, attributes: Attributes) -> int | None:
    """Return a message's priority; None for the lowest (R66)."""
    value = None if expression is None else attributes.get(expression)
    return value if isinstance(value, int) and 0 <= value < 2**64 else None


def key_of(expression: str | None, attributes: Attributes) -> int | None:
    """Return the stable hash of a message's order key; None where it has none."""
    value = None if expression is None else attributes.get(expression)
    return None if value is None else int.from_bytes(blake2b(str(value).encode(), digest_size=8).digest(), "big")


def _compare(words: list[str], attributes: Attributes) -> bool:
    name, comparison, literal = words
    found, wanted = attributes.get(name), number_or_text(literal)
    return isinstance(found, type(wanted)) and _COMPARISONS[comparison](found, wanted)
