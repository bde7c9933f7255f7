"""``sparkq peers``: the verbs about the instances that a journal pulls from."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from spark_queue.cli.arguments import Coordinator, JournalPath, Json, StorageOptions, TokenFile, open_target
from spark_queue.cli.output import ALARM_EXIT_CODE, draw, say, show_json, table
from spark_queue.cli.peer_changes import drain, forget, reset, skip

if TYPE_CHECKING:
    from spark_queue.client.peers import PeerCheck

group = typer.Typer(name="peers", no_args_is_help=True, help="Look after the instances that a journal pulls from.")

#: What people see of a peer first; the rest is in --json.
_COLUMNS = (
    "peer", "reachable", "silent_seconds", "records_behind", "seconds_behind", "rows_copied", "bytes_copied", "remote", "requested",
    "transferred_in", "transferred_out",
)  # fmt: skip


def check(journal: JournalPath, *, storage: StorageOptions = None, json: Json = False) -> None:
    """Check whether the definitions of all instances fit each other. Starts nothing. Exits with 3 where they do not."""
    done = open_target(journal, storage).check_peers()
    if json:
        show_json(asdict(done))
    else:
        draw(table(_rows(done), ("rule", "asks_for", "broken_by"), cut=False))
        say(f"Read: {', '.join(done.read)}.")
        for instance, reason in done.unread.items():
            say(f"Not read: {instance}. {reason}")
    if not done.fits:
        raise SystemExit(ALARM_EXIT_CODE)


def status(
    journal: JournalPath,
    *,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show how pulling from each peer goes. Starts nothing. Exits with 3 if something needs attention."""
    found = open_target(journal, storage, coordinator, token_file).peer_status()
    if json:
        show_json([asdict(each) for each in found])
    else:
        draw(table([asdict(each) for each in found], _COLUMNS))
        for each in found:
            for reason in [*([] if each.trouble is None else [each.trouble]), *each.disagreements]:
                say(f"{each.peer}: {reason}")
    if any(each.trouble or each.disagreements or each.reachable is False for each in found):
        raise SystemExit(ALARM_EXIT_CODE)


def _rows(done: PeerCheck) -> list[dict[str, Any]]:
    """Return a row for each rule, and one for each time that it is broken."""
    rows = []
    for rule, text in done.rules.items():
        broken = [f"{each.queue}, {each.instance} from {each.peer}: {each.reason}" for each in done.broken if each.rule == rule]
        rows += [{"rule": rule, "asks_for": text, "broken_by": each} for each in broken or ["nothing"]]
    return rows


for verb in (check, status, drain, forget, skip, reset):
    group.command()(verb)
