"""Reads the tables of definitions by their keys, and refuses what they cannot hold by name (DESIGN 15.7, 15.8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import re2

from spark_queue.core.definitions.definition import QUIET, is_pattern
from spark_queue.core.definitions.keys import keys_of, valid_name
from spark_queue.errors import ConfigError, nearest


def read_tables(stored: Mapping[str, Any], key: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the named tables under `key`; what is no table of tables is refused."""
    tables = stored.get(key, {})
    if not isinstance(tables, Mapping):
        raise ConfigError("BAD_VALUE", key=key, where="the definitions", value=tables, expected="tables of keys by name")
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise ConfigError("BAD_VALUE", key=name, where=f"[{key}]", value=table, expected="a table of keys")
    return tables


def read_keys(table: Mapping[str, Any], definition: type, where: str) -> dict[str, Any]:
    """Return the values of a table by the fields of what it defines; what is no such key, or no such value, is refused."""
    keys = keys_of(definition)
    check_keys(table, [key.name for key in keys], where)
    values: dict[str, Any] = {}
    for key in keys:
        if key.name not in table:
            if key.required is not None:
                raise ConfigError("BAD_VALUE", key=key.name, where=where, value=None, expected=key.required)
            values[key.field] = key.value
            continue
        value = table[key.name]
        try:
            values[key.field] = key.parse(value)
        except ValueError as reason:
            raise ConfigError("BAD_VALUE", key=key.name, where=where, value=value, expected=str(reason)) from None
    return values


def check_keys(table: Any, known: Iterable[str], where: str) -> None:
    """Refuse what is no table, and keys that are not known."""
    if not isinstance(table, Mapping):
        raise ConfigError("BAD_VALUE", key=where, where="the definitions", value=table, expected="a table of keys")
    known = tuple(known)
    for key in table:
        if key not in known:
            raise ConfigError("UNKNOWN_KEY", key=key, where=where, nearest=nearest(str(key), known))


def check_names(what: str, names: Iterable[str]) -> None:
    """Refuse names that are not allowed, and two that differ only in case."""
    seen: dict[str, str] = {}
    for name in names:
        if not valid_name(name):
            raise ConfigError("NAME_INVALID", what=what, name=name)
        if name.lower() in seen:
            raise ConfigError("NAME_CASE_CLASH", what=what, name=name, other=seen[name.lower()])
        seen[name.lower()] = name


def check_topic_entry(entry: str, key: str, where: str) -> None:
    """Refuse what is neither a name nor a pattern of RE2."""
    if not is_pattern(entry):
        if not valid_name(entry):
            raise ConfigError("NAME_INVALID", what="topic", name=entry)
        return
    try:
        re2.compile(entry, QUIET)
    except re2.error as reason:
        raise ConfigError(
            "BAD_VALUE", key=key, where=where, value=entry, expected=f"a valid RE2 pattern ({_re2_text(reason)})"
        ) from None


def _re2_text(reason: Exception) -> str:
    text = reason.args[0] if reason.args else reason
    return text.decode() if isinstance(text, bytes) else str(text)
