"""``sparkq init`` and ``sparkq apply``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from spark_queue.cli.output import out, show_json
from spark_queue.cli.target import open_target, storage_options
from spark_queue.client.journal import Journal


def init(path: str, definitions: Path | None, storage: list[str] | None, *, as_json: bool) -> None:
    """Create a journal."""
    journal = Journal.create(path, definitions, storage_options=storage_options(storage))
    found = journal.definitions()
    if as_json:
        show_json({"journal": journal.journal_id(), "path": path, "queues": list(found.queues)})
        return
    out.print(f"Created journal {journal.journal_id()} at {path}.", soft_wrap=True)
    if found.queues:
        out.print(f"Queues: {', '.join(found.queues)}.", soft_wrap=True)
    else:
        out.print(f"Next: sparkq apply {path} queues.toml", soft_wrap=True)


def apply(
    path: str,
    definitions: Path,
    storage: list[str] | None,
    coordinator: str | None,
    *,
    dry_run: bool,
    reset: list[str],
    remove: list[str],
    as_json: bool,
) -> None:
    """Make a definition file the definitions of a journal; a queue that it leaves out goes only when it is named."""
    journal = open_target(path, storage, coordinator)
    changes = journal.apply(definitions, dry_run=dry_run, reset=reset, remove=remove)
    if as_json:
        show_json({"dry_run": dry_run, "changes": [asdict(change) for change in changes]})
        return
    for change in changes:
        out.print(str(change), markup=False, soft_wrap=True)
    outcome = "Nothing to change." if not changes else "Nothing was changed yet." if dry_run else "Applied."
    out.print(outcome)
