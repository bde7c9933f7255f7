"""``sparkq init`` and ``sparkq apply``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import spark_queue
from spark_queue.cli.arguments import Coordinator, JournalPath, Json, StorageOptions, TokenFile, open_target, storage_options
from spark_queue.cli.output import show


def init(
    journal: JournalPath,
    definitions: Annotated[Path | None, typer.Argument(metavar="[DEFINITIONS]", help="TOML file to apply at once.")] = None,
    *,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Create a journal."""
    from spark_queue.journal.reader import open_reader

    made = spark_queue.Journal.create(journal, definitions, storage_options=storage_options(storage))
    reader = open_reader(made.store)
    queues = list(reader.definitions().queues)
    following = f"Queues: {', '.join(queues)}." if queues else f"Next: sparkq apply {journal} queues.toml"
    text = f"Created journal {reader.journal_id} at {journal}.\n{following}"
    show({"journal": reader.journal_id, "path": journal, "queues": queues}, text, as_json=json)


def apply(
    journal: JournalPath,
    definitions: Annotated[Path, typer.Argument(metavar="DEFINITIONS", help="TOML file with the whole set.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    reset: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE", help="Take this queue's recovery point again; may repeat.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE", help="Let this queue go, which the file leaves out; may repeat.")
    ] = None,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Make a definition file the definitions of a journal."""
    target = open_target(journal, storage, coordinator, token_file)
    changes = target.apply(definitions, dry_run=dry_run, reset=reset or [], remove=remove or [])
    outcome = "Nothing to change." if not changes else "Nothing was changed yet." if dry_run else "Applied."
    value = {"dry_run": dry_run, "changes": [asdict(change) for change in changes]}
    show(value, "\n".join([*map(str, changes), outcome]), as_json=json)
