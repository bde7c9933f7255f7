"""The arguments and options that several verbs share, and the journal that they name. Loads nothing that is slow.

``sparkq options``: the registry, for people, programs and the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

import spark_queue
from spark_queue.cli.output import draw, show_exact, show_json, table
from spark_queue.errors import ConfigError
from spark_queue.settings.timestamps import parse_moment, parse_timestamp

if TYPE_CHECKING:
    from spark_queue.client.journal import Journal
    from spark_queue.settings.registry import RegistryRow

#: The variable that names the coordinator where no option does.
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
    """Return the journal that the arguments name."""
    if token_file == "":
        raise bad_argument("--token-file", token_file, "a path")
    options = storage_options(path, storage)
    return spark_queue.Journal(path, storage_options=options, coordinator=coordinator, token_file=token_file)


def storage_options(path: str, storage: list[str] | None) -> dict[str, str]:
    """Return the storage options of a journal: those of the user's file of stores, and over them KEY=VALUE texts.

    The values may be secrets and are never shown.
    """
    from spark_queue.cli.output import warn
    from spark_queue.journal.store import Store, is_secret
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


def parse_since(text: str | None, *, name: str = "--since") -> datetime | None:
    """Read a time: a date, of which UTC's midnight counts, or an ISO-8601 time with offset."""
    try:
        return None if text is None else parse_moment(text)
    except ValueError as expected:
        raise bad_argument(name, text or "", f"a date or {expected}") from None


def bad_argument(name: str, value: str, expected: str) -> ConfigError:
    """Make the refusal of an argument's value."""
    return ConfigError("BAD_VALUE", key=name, where="the arguments", value=value, expected=expected)


_TITLES = {"keys": "Keys of a definition file", "options": "Spark options"}


def options(
    *,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown, as the reference has them.")] = False,
    json: Json = False,
) -> None:
    """List every key of a definition file and every Spark option."""
    from spark_queue.expression.functions import accepted
    from spark_queue.settings.registry import key_rows, option_rows

    tables = {"keys": key_rows(), "options": option_rows()}
    if json:
        show_json({name: [asdict(row) for row in rows] for name, rows in tables.items()} | {"expressions": accepted()})
    elif markdown:
        show_exact("\n".join([*map(to_markdown, tables.values()), expressions_to_markdown(accepted())]))
    else:
        for name, rows in tables.items():
            columns = ("name", "default", "applies_to", "about")
            draw(table([asdict(row) for row in rows], columns, title=_TITLES[name], cut=False))
        rows_of = [{"part": part, "accepted": text} for part, text in accepted().items()]
        draw(table(rows_of, ("part", "accepted"), title="What expressions may use", cut=False))


def to_markdown(rows: Sequence[RegistryRow]) -> str:
    """Return a table as Markdown, as it stands in the reference."""
    lines = ["| Name | Default | For | Meaning |", "|---|---|---|---|"]
    lines += [f"| `{row.name}` | {row.default} | {row.applies_to} | {row.about} |" for row in rows]
    return "\n".join(lines) + "\n"


def expressions_to_markdown(accepted: Mapping[str, str]) -> str:
    """Return the operators and functions of expressions as Markdown, as they stand in the reference."""
    lines = ["| Part | Accepted |", "|---|---|"]
    # A bar would end the cell.
    lines += [f"| {part} | {text.replace('|', chr(92) + '|')} |" for part, text in accepted.items()]
    return "\n".join(lines) + "\n"
