"""``sparkq init`` and ``sparkq apply``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import spark_queue
from spark_queue.cli.arguments import bad_argument
from spark_queue.cli.verb import OF_COORDINATOR, OF_STORE, VerbTarget, verb

if TYPE_CHECKING:
    from spark_queue.client.changes import Change
    from spark_queue.client.journal import Journal

#: The wait for a caller that starts a coordinator on this host, in seconds.
_LOCK_S = 10.0


@verb(OF_STORE)
def init(
    target: VerbTarget,
    definitions: Annotated[Path | None, typer.Argument(metavar="[DEFINITIONS]", help="TOML file to apply at once.")] = None,
) -> None:
    """Create a journal."""
    from spark_queue.journal.reader import open_with_definitions

    made = spark_queue.Journal.create(target.path, definitions, storage_options=target.storage_options(target.path))
    reader, (_, applied) = open_with_definitions(made.store)
    queues = list(applied.queues)
    following = f"Queues: {', '.join(queues)}." if queues else f"Next: sparkq apply {target.path} queues.toml"
    text = f"Created journal {reader.journal_id} at {target.path}.\n{following}"
    target.show({"journal": reader.journal_id, "path": target.path, "queues": queues}, text)


@verb(OF_COORDINATOR)
def apply(
    target: VerbTarget,
    definitions: Annotated[Path, typer.Argument(metavar="DEFINITIONS", help="TOML file with the whole set.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    reset: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE", help="Begin this queue again at its recovery point; may repeat.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE", help="Drop this queue, which the file leaves out; may repeat.")
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option(metavar="QUEUE", help="The same for a queue shared with other instances; may repeat."),
    ] = None,
    as_store_owner: Annotated[
        bool,
        typer.Option(
            "--as-store-owner",
            help="Replace the principals if nobody can administer the journal any more; stops the coordinator. The log records it.",
        ),
    ] = False,
) -> None:
    """Apply a definition file to a journal."""
    opened = target.journal
    if as_store_owner:
        for option, queues in (("--reset", reset), ("--remove", remove), ("--leave", leave)):
            if queues:
                raise bad_argument(option, queues[0], "left out with --as-store-owner, which changes [principals] alone")
        changes = _apply_as_store_owner(opened, definitions, dry_run=dry_run)
    else:
        changes = opened.apply(definitions, dry_run=dry_run, reset=reset or [], remove=remove or [], leave=leave or [])
    outcome = "Nothing to change." if not changes else "Nothing was changed yet." if dry_run else "Applied."
    value = {"dry_run": dry_run, "changes": [asdict(change) for change in changes]}
    target.show(value, "\n".join([*map(str, changes), outcome]))


def _apply_as_store_owner(journal: Journal, definitions: Path, *, dry_run: bool) -> list[Change]:
    """Replace the principals past the coordinator, which would ask for a right that nobody has."""
    from spark_queue.cli.stop import stop_coordinator
    from spark_queue.client.changes import plan
    from spark_queue.coordinator.store_owner import apply_principals
    from spark_queue.journal.open import open_journal
    from spark_queue.journal.table_look import completed
    from spark_queue.protocol import user_files
    from spark_queue.settings.read import load_definitions

    opened = open_journal(journal.store)
    known = opened.definitions()
    wanted, queues = completed(journal.store, load_definitions(definitions), known), known.queues
    changes = plan(opened, wanted, reset=(), remove=queues, leave=queues, endpoint=None, dry_run=True).changes
    others = [change.where for change in changes if not change.where.startswith("[principals.")]
    if others:
        value, expected = f"with a change of {others[0]}", "given with definitions that change [principals] alone"
        raise bad_argument("--as-store-owner", value, expected)
    if changes and not dry_run:
        journal_id = journal.journal_id()
        # Callers on this host start no other one meanwhile.
        with user_files.start_lock(journal_id, timeout_s=_LOCK_S):
            principals = wanted.stored.get("principals", {})
            apply_principals(journal.store, journal_id, principals, lambda: stop_coordinator(journal, journal_id))
    return changes
