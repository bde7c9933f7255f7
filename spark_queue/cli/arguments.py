"""The arguments and options that several verbs share, and the journal that they name. Loads nothing that is slow."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

import spark_queue
from spark_queue.errors import ConfigError
from spark_queue.settings.timestamps import parse_timestamp

if TYPE_CHECKING:
    from spark_queue.client.journal import Journal

#: Says which coordinator is asked where no option does.
COORDINATOR_VARIABLE = "SPARKQ_COORDINATOR"

JournalPath = Annotated[str, typer.Argument(metavar="JOURNAL", help="Directory or object-store prefix of the journal.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables for people.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", "-o", metavar="KEY=VALUE", help="Option of the object store; may repeat. No secrets: others see them."
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT[,...]",
        envvar=COORDINATOR_VARIABLE,
        help="A coordinator that `sparkq serve` runs elsewhere, and its stand-ins.",
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="File with your token, of mode 0600; default: SPARKQ_TOKEN or SPARKQ_TOKEN_FILE."),
]
OnlyWhere = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="Only what matches: Spark SQL over the message type's columns; of dead letters also reason and error.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do; starts and changes nothing.")]
PerSubscription = Annotated[bool, typer.Option("--per-subscription", help="Add metrics of each subscription.")]
AsOf = Annotated[str | None, typer.Option(metavar="TIME|RECORD", help="ISO-8601 time with offset, or a record number.")]


def open_target(path: str, storage: list[str] | None, coordinator: str | None = None, token_file: str | None = None) -> Journal:
    """Return the journal that the arguments name.

    Raises
    ------
    ConfigError
        BAD_VALUE when a storage option is not KEY=VALUE.
    """
    options = storage_options(path, storage)
    return spark_queue.Journal(path, storage_options=options, coordinator=coordinator, token_file=token_file)


def storage_options(path: str, storage: list[str] | None) -> dict[str, str]:
    """Return the storage options of a journal: what the user's file of stores says, and over it KEY=VALUE texts.

    The values may be secrets and are never shown.

    Raises
    ------
    ConfigError
        BAD_VALUE when one is not KEY=VALUE; STORES_UNREADABLE.
    """
    from spark_queue.cli.output import warn
    from spark_queue.journal.layout import Store
    from spark_queue.journal.objects import is_secret
    from spark_queue.replication.peer_stores import options_of, stores_path

    options = options_of(Store(path).path) or {}
    for number, text in enumerate(storage or [], start=1):
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise bad_argument("--storage-option", f"number {number}", "KEY=VALUE")
        options[key] = value
        if is_secret(key):
            visible = "the list of processes and the shell's history show it. Write it to"
            warn("warning", f"'{key}' is given by -o: {visible} {stores_path()}, or let the environment say it.", style="yellow")
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
        raise bad_argument("--as-of", text, f"a record number or {reason}") from None


def bad_argument(name: str, value: str, expected: str) -> ConfigError:
    """Make the refusal of an argument's value."""
    return ConfigError("BAD_VALUE", key=name, where="the arguments", value=value, expected=expected)
