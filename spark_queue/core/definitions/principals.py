"""Reads who may call, and checks that somebody can still change who may (R12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_queue.core.definitions.definition import Entitlement, PrincipalDefinition
from spark_queue.core.definitions.keys import ADMINISTER, ENTITLEMENT_KEYS, PRINCIPAL_KEYS, READ
from spark_queue.core.definitions.tables import check_names, check_topic_entry, read_keys, read_tables
from spark_queue.errors import AccessError, ConfigError

#: What the pattern of an entry is that says nothing of queues.
_EVERY_QUEUE = "^.*"


def parse_principals(stored: Mapping[str, Any]) -> dict[str, PrincipalDefinition]:
    """Return the principals of stored definitions, by name.

    Raises
    ------
    ConfigError
        BAD_VALUE, UNKNOWN_KEY, NAME_INVALID, CONTRADICTORY_SETTINGS: also of two with one token.
    AccessError
        NOBODY_ADMINISTERS: nobody could change them any more.
    """
    tables = read_tables(stored, "principals")
    check_names("principal", tables)
    principals = {
        name: _parse_principal(name, read_keys(table, PRINCIPAL_KEYS, f"[principals.{name}]")) for name, table in tables.items()
    }
    _check_principals(principals)
    return principals


def _parse_principal(name: str, values: Mapping[str, Any]) -> PrincipalDefinition:
    where = f"[principals.{name}]"
    for key, expected in (("token_hash", "the hash that `sparkq token new` prints"), ("rights", "a list of tables of rights")):
        if values[key] is None:
            raise ConfigError("BAD_VALUE", key=key, where=where, value=None, expected=expected)
    return PrincipalDefinition(name=name, **{**values, "rights": tuple(_entitlement(each, where) for each in values["rights"])})


def _entitlement(table: Mapping[str, Any], where: str) -> Entitlement:
    where = f"rights of {where}"
    values = read_keys(table, ENTITLEMENT_KEYS, where)
    check_topic_entry(values["queues"], "queues", where)
    if values["rights"] is None:
        raise ConfigError("BAD_VALUE", key="rights", where=where, value=None, expected="a list of rights")
    found = Entitlement(**values)
    if found.filter is not None and READ not in found.rights:
        reason = "a filter says what is read, and the entry does not give that right."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="filter, rights")
    if ADMINISTER in found.rights and found.queues != _EVERY_QUEUE:
        reason = f"{ADMINISTER} is for the whole journal, not for queues '{found.queues}'."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="queues, rights")
    return found


def _check_principals(principals: Mapping[str, PrincipalDefinition]) -> None:
    owners: dict[str, str] = {}
    for principal in principals.values():
        for token_hash in principal.token_hash:
            other = owners.setdefault(token_hash, principal.name)
            if other != principal.name:
                where, reason = f"[principals.{principal.name}]", f"its token is that of '{other}', and a token tells who calls."
                raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="token_hash")
    # One that expires would lock everybody out later, when nobody applies anything.
    if principals and not any(each.administers and each.expires_ms is None for each in principals.values()):
        raise AccessError("NOBODY_ADMINISTERS", principals=", ".join(principals))
