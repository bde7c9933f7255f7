"""``sparkq log``: records with their time and author."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import Annotated

import typer

from spark_queue.cli.arguments import bad_argument
from spark_queue.cli.output import draw, say, show_json, table
from spark_queue.cli.verb import OF_STORE, VerbTarget, verb
from spark_queue.core.records import Kind
from spark_queue.errors import check_text
from spark_queue.settings.timestamps import to_text

#: Columns for people; the rest is in --json.
_LOG_COLUMNS = ("record", "at", "kind", "queue", "subscription", "messages", "text", "who")


@verb(OF_STORE)
def log(
    target: VerbTarget,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.")] = None,
    *,
    people: Annotated[
        bool, typer.Option("--people", help="Only changes by people: apply, pause, purge, redrive, settle by hand.")
    ] = False,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="Only records of this kind, such as paused.")] = None,
    before: Annotated[int | None, typer.Option(metavar="RECORD", help="Only records before this one.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Records to show.")] = 20,
) -> None:
    """Show the control log, newest first: who did what when. Changes name the principal, or user and host. Starts nothing."""
    from spark_queue.client.applied import applied_versions
    from spark_queue.journal.reader import open_reader
    from spark_queue.views.control_rows import record_page

    for name, text in (("QUEUE", queue), ("--kind", kind)):
        if text is not None:
            check_text(text, key=name, where="the arguments")
        if text == "":
            raise bad_argument(name, text, "a name")
    opened = open_reader(target.journal.store)
    all_rows = opened.record_rows()
    page = record_page(all_rows, queue=queue, kind=kind, by_people=people, before=before, limit=limit)
    rows = [{**asdict(row), "at": to_text(row.at_ms)} for row in page.rows]
    applied = [row for row in rows if row["kind"] == Kind.DEFINITIONS_APPLIED]
    versions = applied_versions(all_rows) if applied else []
    shown = {row["record"] for row in applied}
    changes = {newer.record: newer.changes_since(older) for newer, older in pairwise(versions) if newer.record in shown}
    for row in applied:
        row["changes"] = changes.get(row["record"], [])
    if target.as_json:
        show_json(rows)
    elif rows:
        draw(table(rows, _LOG_COLUMNS, figures=("messages",)))
        more = f" --before {rows[-1]['record']} shows older ones." if page.total > len(rows) else ""
        for row in applied:
            if row["changes"]:
                say("\n  ".join([f"Record {row['record']}:", *row["changes"]]))
        say(f"{len(rows):,} of {page.total:,} records.{more}")
    else:
        say(f"There are no such records. The log has these kinds: {', '.join(page.kinds)}.")
