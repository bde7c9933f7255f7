"""The tables of options and keys that people read: ``sparkq options`` and the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_queue.core.definitions import keys
from spark_queue.core.definitions.keys import Key
from spark_queue.settings.registry import OPTIONS, Option
from spark_queue.settings.types import Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRow:
    """One line of the tables that people read."""

    name: str
    default: str
    applies_to: str
    about: str


def option_rows() -> list[RegistryRow]:
    """List the Spark options for people, in the registry's order."""
    about = "Options of the object store, passed to every reader and writer."
    storage = RegistryRow(name="storage.*", default="none", applies_to="all", about=about)
    return [_option_row(option) for option in OPTIONS[:1]] + [storage] + [_option_row(option) for option in OPTIONS[1:]]


def _option_row(option: Option) -> RegistryRow:
    if isinstance(option.default, Mapping):
        default = ", ".join(f"{value} ({purpose})" for purpose, value in option.default.items())
    else:
        default = "required" if option.required else option.default or "none"
    purposes = [str(purpose) for purpose in Purpose if purpose in option.purposes]
    applies_to = "all" if len(purposes) == len(Purpose) else ", ".join(purposes)
    return RegistryRow(name=option.name, default=default, applies_to=applies_to, about=option.about)


def key_rows() -> list[RegistryRow]:
    """List the keys of a definition file for people, by table."""
    tables: tuple[tuple[str, tuple[Key, ...]], ...] = (
        ("[journal]", keys.JOURNAL_KEYS),
        ("[message_types.NAME]", keys.MESSAGE_TYPE_KEYS),
        ("[queues.NAME]", keys.QUEUE_KEYS),
        ("[peers.NAME]", keys.PEER_KEYS),
        ("[replication]", keys.REPLICATION_KEYS),
        ("[principals.NAME]", keys.PRINCIPAL_KEYS),
        ("[[principals.NAME.rights]]", keys.ENTITLEMENT_KEYS),
    )
    return [_key_row(key, where) for where, table in tables for key in table]


def _key_row(key: Key, where: str) -> RegistryRow:
    default = "none" if key.default is None or key.default == () else str(key.default)
    return RegistryRow(name=key.name, default=default, applies_to=where, about=key.about)
