"""``sparkq decide`` and ``sparkq prove``: the fate of a batch."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_queue.cli.arguments import DryRun, QueueName, bad_argument
from spark_queue.cli.output import ALARM_EXIT_CODE, NOTHING_EXIT_CODE, draw, say, show_error, show_json, table
from spark_queue.cli.verb import OF_COORDINATOR, VerbTarget, verb
from spark_queue.errors import LeaseError, SparkQueueError
from spark_queue.settings.timestamps import to_text

if TYPE_CHECKING:
    from spark_queue.client.proving import ProvenLease


@verb(OF_COORDINATOR)
def decide(
    target: VerbTarget,
    queue: QueueName,
    *,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="Only the batch of this subscription.")] = None,
    landed: Annotated[bool, typer.Option("--landed", help="With --force: the batches landed in their sink.")] = False,
    fenced: Annotated[bool, typer.Option("--fenced", help="With --force: they did not, and never will.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Decide without reading the sink, if it is gone for good.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Find out in the sinks whether batches in doubt landed, or decide by --force. Exits with 3 if one stays in doubt."""
    opened = target.journal.queue(queue)
    if landed and fenced:
        raise bad_argument("--landed", "with --fenced", "one of the two")
    if force != (landed or fenced):
        raise bad_argument("--force", "given" if force else "missing", "given together with --landed or --fenced")
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
        say("Batches that landed are settled as prepared. Messages of fenced batches come again once their lease is over.")
    if not dry_run and any(row["error"] for row in rows):
        raise SystemExit(ALARM_EXIT_CODE)


@verb(OF_COORDINATOR)
def prove(
    target: VerbTarget,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The query's checkpointLocation, as a path or a URL.")],
) -> None:
    """Acknowledge the last batch that a query committed, if it ended before it could report that. Exits with 4 if there is none."""
    try:
        found = target.journal.prove(checkpoint, storage_options=target.storage_options(checkpoint) or None)
    except LeaseError as refusal:
        if refusal.code != "NOTHING_TO_PROVE":
            raise
        show_error(refusal, as_json=target.as_json)
        raise SystemExit(NOTHING_EXIT_CODE) from None
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
    return f"{proven.messages:,} message(s) are done" if proven.messages else "this acknowledged no message"
