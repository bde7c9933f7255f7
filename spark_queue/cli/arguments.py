"""The arguments and options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

JournalPath = Annotated[str, typer.Argument(metavar="JOURNAL", help="Directory or object-store prefix of the journal.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables for people.")]
StorageOptions = Annotated[
    list[str] | None, typer.Option("--storage-option", "-o", metavar="KEY=VALUE", help="Option of the object store; may repeat.")
]
Coordinator = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="A coordinator that `sparkq serve` runs elsewhere.")]
OnlyWhere = Annotated[
    str | None, typer.Option("--where", metavar="FILTER", help="Only what matches: Spark SQL over the message type's columns.")
]
