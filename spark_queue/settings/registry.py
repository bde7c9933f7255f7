"""The tables of options and keys that people read: ``sparkq options`` and the reference."""

from __future__ import annotations

from dataclasses import dataclass

from spark_queue.core.definitions.definition import TABLES, UNNAMED_TABLES, Entitlement
from spark_queue.core.definitions.keys import Key, keys_of
from spark_queue.settings.option import Option, options_of
from spark_queue.settings.shown import shown
from spark_queue.settings.types import TYPES, Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRow:
    """One line of the tables that people read."""

    name: str
    default: str
    applies_to: str
    about: str


def option_rows() -> list[RegistryRow]:
    """List the Spark options for people: those of one name together, where the first purpose has it."""
    about = "Options of the object store, passed to every reader and writer."
    storage = RegistryRow(name="storage.*", default="none", applies_to="all", about=about)
    found: dict[str, dict[str, dict[Purpose, Option]]] = {}
    for purpose, kind in TYPES.items():
        for each in options_of(kind):
            found.setdefault(each.name, {}).setdefault(each.about, {})[purpose] = each
    first, *rest = [_option_row(alike) for of_name in found.values() for alike in of_name.values()]
    return [first, storage, *rest]


def _option_row(alike: dict[Purpose, Option]) -> RegistryRow:
    any_of, defaults = next(iter(alike.values())), {purpose: each.default for purpose, each in alike.items()}
    if len(set(defaults.values())) > 1:
        default = ", ".join(f"{value} ({purpose})" for purpose, value in defaults.items())
    else:
        default = "required" if any_of.required else any_of.default or "none"
    applies_to = "all" if len(alike) == len(Purpose) else ", ".join(alike)
    return RegistryRow(name=any_of.name, default=default, applies_to=applies_to, about=any_of.about)


def key_rows() -> list[RegistryRow]:
    """List the keys of a definition file for people, by table."""
    heads = {f"[{head}]" if head in UNNAMED_TABLES else f"[{head}.NAME]": kind for head, kind in TABLES.items()}
    heads["[[principals.NAME.rights]]"] = Entitlement
    return [_key_row(key, where) for where, kind in heads.items() for key in keys_of(kind)]


def _key_row(key: Key, where: str) -> RegistryRow:
    default = "none" if key.default in (None, (), {}) else shown(key.default)
    return RegistryRow(name=key.name, default=default, applies_to=where, about=key.about)


def names_of(purpose: Purpose) -> frozenset[str]:
    """Return the options of a purpose, in lower case as Spark compares them."""
    return frozenset(option.name.lower() for option in options_of(TYPES[purpose]))
