"""The arguments and options that some verbs have, and how their values are read. Loads nothing that is slow."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from spark_queue.errors import ConfigError
from spark_queue.settings.timestamps import parse_moment, parse_timestamp

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
OnlyWhere = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="Only messages that match: Spark SQL over the message type's columns; for dead letters also reason and error.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done; starts and changes nothing.")]
PerSubscription = Annotated[bool, typer.Option("--per-subscription", help="Add metrics of each subscription.")]
AsOf = Annotated[str | None, typer.Option(metavar="TIME|RECORD", help="ISO-8601 time with offset, or a record number.")]


def parse_as_of(text: str | None) -> datetime | int | None:
    """Read a moment: a record number, or an ISO-8601 time with offset."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        return parse_timestamp(text, where="--as-of")
    except ValueError as reason:
        raise bad_argument("--as-of", text, f"a record number or {reason}") from None


def parse_since(text: str | None, *, name: str = "--since") -> datetime | None:
    """Read a time: a date, of which UTC's midnight counts, or an ISO-8601 time with offset."""
    try:
        return None if text is None else parse_moment(text, where=name)
    except ValueError as expected:
        raise bad_argument(name, text or "", f"a date or {expected}") from None


def bad_argument(name: str, value: str, expected: str) -> ConfigError:
    """Make the refusal of an argument's value."""
    return ConfigError("BAD_VALUE", key=name, where="the arguments", value=value, expected=expected)
