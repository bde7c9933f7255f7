"""``sparkq peers``: the verbs about the instances that a journal pulls from."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from spark_queue.cli.arguments import JournalPath, Json, StorageOptions, open_target
from spark_queue.cli.output import out, show_json, table
from spark_queue.cli.peer_changes import drain, forget, reset, skip

if TYPE_CHECKING:
    from spark_queue.client.peers import PeerCheck

group = typer.Typer(name="peers", no_args_is_help=True, help="Look after the instances that a journal pulls from.")

#: Exit code where a rule is broken.
BROKEN_EXIT_CODE = 2


def check(journal: JournalPath, *, storage: StorageOptions = None, json: Json = False) -> None:
    """Check whether the definitions of all instances fit each other. Starts nothing. Exits with 2 where they do not."""
    done = open_target(journal, storage).check_peers()
    if json:
        show_json(asdict(done))
    else:
        out().print(table(_rows(done), ("rule", "asks_for", "broken_by"), cut=False))
        typer.echo(f"Read: {', '.join(done.read)}.")
        for instance, reason in done.unread.items():
            typer.echo(f"Not read: {instance}. {reason}")
    if not done.fits:
        raise SystemExit(BROKEN_EXIT_CODE)


def _rows(done: PeerCheck) -> list[dict[str, Any]]:
    """Return a row for each rule, and one for each time that it is broken."""
    rows = []
    for rule, text in done.rules.items():
        broken = [f"{each.queue}, {each.instance} from {each.peer}: {each.reason}" for each in done.broken if each.rule == rule]
        rows += [{"rule": rule, "asks_for": text, "broken_by": each} for each in broken or ["nothing"]]
    return rows


for verb in (check, drain, forget, skip, reset):
    group.command()(verb)
