"""How typed options say of their fields which Spark options fill them, as a definition does of its keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Option:
    """One Spark option."""

    #: As a user writes it; Spark hands it over in lower case.
    name: str
    #: Turns the text into a value; raises ValueError with what was expected.
    parse: Callable[[str], Any]
    about: str
    #: The text that stands for an absent option; None where absence means none.
    default: str | None = None
    required: bool = False
    #: Attribute of the typed options; options that share one exclude one another.
    field: str = ""


def option(parse: Callable[[str], Any], about: str, default: str | None = None, *, required: bool = False) -> Any:
    """Return the field that an option of its name fills: how it is read, its meaning, and what absence means."""
    return either(Option("", parse, about, default, required))


def either(first: Option, *others: Option) -> Any:
    """Return the field that one of several options fills; the first may have a default."""
    facts = {"options": (first, *others)}
    if first.required:
        return field(metadata=facts)
    return field(default=None if first.default is None else first.parse(first.default), metadata=facts)


def options_of(kind: type) -> tuple[Option, ...]:
    """Return the options that fill the fields of typed options, in their order."""
    return tuple(
        replace(each, name=each.name or _written(entry.name), field=entry.name)
        for entry in fields(kind)
        for each in entry.metadata.get("options", ())
    )


def _written(name: str) -> str:
    """Return the name of an option as a user writes it: without the unit, and a capital for each further word."""
    first, *others = name.removesuffix("_ms").split("_")
    return first + "".join(map(str.capitalize, others))
