"""``sparkq decide`` and ``sparkq prove``: the fate of a batch."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_queue.cli.arguments import DryRun, QueueName, bad_argument
from spark_queue.cli.output import ALARM_EXIT_CODE, draw, say, show_json, table
from spark_queue.cli.verb import OF_COORDINATOR, VerbTarget, verb
from spark_queue.errors import SparkQueueError
from spark_queue.settings.timestamps import to_text

if TYPE_CHECKING:
    from spark_queue.client.proving import ProvenLease


@verb(OF_COORDINATOR)
def decide(
    target: VerbTarget,
    queue: QueueName,
    *,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="Only the one of this subscription.")] = None,
    landed: Annotated[bool, typer.Option("--landed", help="With --force: they stand in their sink.")] = False,
    fenced: Annotated[bool, typer.Option("--fenced", help="With --force: they do not, and never will.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Decide by your word, where the sink is gone for good.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Find out in their sinks what became of batches that are in doubt, or say it by force. Exits with 3 if one stays in doubt."""
    opened = target.journal.queue(queue)
    if landed and fenced:
        raise bad_argument("--landed", "with --fenced", "one of the two")
    if force != (landed or fenced):
        raise bad_argument("--force", "given" if force else "missing", "given with --landed or --fenced, and these with it")
    rows: list[dict[str, Any]] = []
    for each in opened.attempts_in_doubt(subscription):
        fate, error = "in doubt", each.error
        if not dry_run:
            try:
                options = target.storage_options(each.table) or None
                stands = opened.decide(each, landed=landed if force else None, storage_options=options)
                fate, error = "landed" if stands else "fenced", None
            except SparkQueueError as reason:
                error = str(reason)
        rows.append(
            {"subscription": each.subscription, "attempt": each.attempt, "table": each.table, "lease": each.lease,
             "prepared": to_text(each.prepared_at_ms), "lease_ends": to_text(each.due_at_ms), "fate": fate, "error": error}
        )  # fmt: skip
    if target.as_json:
        show_json({"queue": queue, "attempts": rows})
    elif not rows:
        say(f"Queue '{queue}': nothing is in doubt.")
    else:
        draw(table(rows, list(rows[0])))
        say("What landed is settled as prepared. Messages of what is fenced come again once their lease is over.")
    if not dry_run and any(row["error"] for row in rows):
        raise SystemExit(ALARM_EXIT_CODE)


@verb(OF_COORDINATOR)
def prove(
    target: VerbTarget,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The query's checkpointLocation, as a path or a URL.")],
) -> None:
    """Acknowledge the last batch that a query has committed, where it ended before it could say so."""
    found = target.journal.prove(checkpoint, storage_options=target.storage_options(checkpoint) or None)
    if target.as_json:
        show_json({"leases": [asdict(each) for each in found]})
        return
    for each in found:
        say(f"Queue '{each.queue}', subscription '{each.subscription}', lease {each.lease}: {_what_became_of(each)}.")


def _what_became_of(proven: ProvenLease) -> str:
    if proven.was_proven:
        return "it was proven before"
    if proven.is_barrier:
        return "its barrier is done"
    # Others have them by now, or they left before, or they are settled by hand.
    return f"{proven.messages:,} message(s) are done" if proven.messages else "no message was acknowledged by this"
