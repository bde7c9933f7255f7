"""``sparkq peek`` and ``sparkq explain``: messages, and one message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pyroaring import BitMap64

from spark_queue.cli.arguments import AsOf, QueueName, bad_argument, parse_as_of
from spark_queue.cli.output import draw, say, show_json, table
from spark_queue.cli.verb import OF_STORE, VerbTarget, verb

if TYPE_CHECKING:
    from datetime import datetime

    from spark_queue.client.journal import Journal


@verb(OF_STORE)
def peek(
    target: VerbTarget,
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUEUE]", help="Name of the queue; left out for all: history, sink_commits, table_changes and status."
        ),
    ] = None,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows to show.")] = 10,
    view: Annotated[
        str, typer.Option(help="messages, dead_letters, leases, subscriptions, sink_commits, table_changes, history or status.")
    ] = "messages",
    columns: Annotated[str | None, typer.Option(metavar="A,B,…", help="Only these columns, in this order.")] = None,
    next_first: Annotated[
        bool,
        typer.Option("--next", help="Only the messages that are granted next, in that order: by priority, the oldest first."),
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Only messages that match, in any state: Spark SQL over the body."),
    ] = None,
    as_of: AsOf = None,
) -> None:
    """Show the oldest messages of a queue without taking them. Starts nothing."""
    from spark_queue.core.definitions.column_names import RESERVED_COLUMNS
    from spark_queue.settings.types import VIEWS, VIEWS_OF_ALL_QUEUES
    from spark_queue.views.bodies import python_rows

    if queue is None and view in VIEWS and view not in VIEWS_OF_ALL_QUEUES:
        raise bad_argument("QUEUE", "missing", "the name of a queue")

    opened = target.journal
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    if where is not None and view != "messages":
        raise bad_argument("--where", where, "left out with --view: it searches messages in any state")
    if next_first and (where is not None or view != "messages"):
        raise bad_argument("--next", "given", "left out with --where and with another --view: it shows messages that wait")
    if where is None:
        found = opened.view(view, queue=queue, as_of=parse_as_of(as_of), columns=wanted, limit=limit, next_first=next_first)
        names, rows = found.column_names, python_rows(found)
    else:
        rows = _find(opened, str(queue), where, as_of=parse_as_of(as_of), columns=wanted, limit=limit)
        names = list(rows[0]) if rows else []
    if target.as_json:
        show_json(rows)
        return
    if not rows:
        of_queue = "" if queue is None else f" of queue '{queue}'"
        none = f"View '{view}'{of_queue} is empty." if where is None else f"No message that entered '{queue}' matches."
        say(f"Queue '{queue}' has no message that may be granted now." if next_first else none)
        return
    # Columns that say nothing of any row would only crowd out the others: to a body 0 and '' say something, to counts they do not.
    facts = RESERVED_COLUMNS if view in ("messages", "dead_letters") else names
    told = {name for row in rows for name, value in row.items() if value or (value is not None and name not in facts)}
    shown = [name for name in names if wanted is not None or name == "bookmark" or name in told]
    # The bookmark comes first; the body may be wide.
    shown.sort(key=lambda name: name != "bookmark" and wanted is None)
    silent = len(names) - len(shown)
    # Chosen columns are all needed; of others the bookmark and the state are.
    draw(table(rows, shown, needed=None if wanted else [name for name in ("bookmark", "state") if name in shown]))
    if where is not None:
        say(f"For the life of one: sparkq explain {target.path} {queue} BOOKMARK")
    if silent:
        say(f"{silent:,} empty column(s) are hidden; --columns or --json shows them.")


def _find(
    journal: Journal, queue: str, where: str, *, as_of: datetime | int | None, columns: Sequence[str] | None, limit: int
) -> list[dict[str, Any]]:
    """Return the oldest messages that match a filter, in any state, as the page finds them."""
    from spark_queue.core.definitions.column_names import ColumnNames
    from spark_queue.core.state.lifecycle import State
    from spark_queue.journal.open import open_journal
    from spark_queue.views import message_rows, message_search, state_at
    from spark_queue.views.messages import names_in_views

    opened = open_journal(journal.store)
    point = state_at(opened, as_of)
    found, after = BitMap64(), 0
    while True:
        chosen = message_search.choose(point.state, queue, states=State, bookmark=None, after=after, where=where)
        more, next_after, _ = message_search.search(opened.traits, chosen, where, limit=limit - len(found))
        found |= more
        if next_after is None or len(found) == limit:
            break
        after = next_after
    values, trouble = message_search.read_values(journal.store, chosen.message_type, chosen.columns, found)
    known = message_rows.message_rows(point.state.ledger(queue), found, point.now_ms)
    definitions = point.state.definitions
    shown = names_in_views(chosen.columns, of_instance=definitions.journal.instance is not None)
    named = [{shown.get(name, name): value for name, value in row.items()} for row in values]
    bodies: list[dict[str, Any]] = named or [{"body": trouble} for _ in known]
    rows = [
        {**body, "bookmark": row.bookmark, "state": row.state, "subscription": row.subscription, "lease": row.lease}
        for row, body in zip(known, bodies, strict=True)
    ]
    if columns is None or not rows:
        return rows
    chosen_names = ColumnNames(rows[0]).resolve(columns, where="what was found")
    return [{name: row[name] for name in chosen_names} for row in rows]


@verb(OF_STORE)
def explain(
    target: VerbTarget,
    queue: QueueName,
    bookmark: Annotated[int, typer.Argument(metavar="BOOKMARK", help="The message's number.")],
    *,
    shows_all: Annotated[
        bool, typer.Option("--all", help=("Every one of many deliveries in a row, not only the first and the last."))
    ] = False,
    as_of: AsOf = None,
) -> None:
    """Show the whole life of one message: publish, leases, returns, its end, or what it waits for. Starts nothing."""
    history = target.journal.queue(queue).explain(bookmark, parse_as_of(as_of))
    text = history.as_text(shows_all=shows_all)
    more = "" if text == history.as_text(shows_all=True) else "\n--all shows each delivery."
    target.show(asdict(history), text + more)
