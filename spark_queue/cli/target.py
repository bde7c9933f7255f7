"""From the arguments of a verb to the journal that it is about."""

from __future__ import annotations

from datetime import datetime

from spark_queue.client.journal import Journal
from spark_queue.errors import ConfigError
from spark_queue.settings import parse_timestamp


def open_target(path: str, storage: list[str] | None, coordinator: str | None = None) -> Journal:
    """Return the journal that the arguments name.

    Raises
    ------
    ConfigError
        BAD_VALUE when a storage option is not KEY=VALUE.
    """
    return Journal(path, storage_options=storage_options(storage), coordinator=coordinator)


def storage_options(storage: list[str] | None) -> dict[str, str]:
    """Read storage options from KEY=VALUE texts; the values may be secrets and are never shown."""
    options: dict[str, str] = {}
    for number, text in enumerate(storage or [], start=1):
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise ConfigError(
                "BAD_VALUE", key="--storage-option", where="the arguments", value=f"number {number}", expected="KEY=VALUE"
            )
        options[key] = value
    return options


def parse_as_of(text: str | None) -> datetime | int | None:
    """Read a moment: a record number, or an ISO-8601 time with offset."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        return parse_timestamp(text)
    except ValueError as reason:
        expected = f"a record number or {reason}"
        raise ConfigError("BAD_VALUE", key="--as-of", where="the arguments", value=text, expected=expected) from None
