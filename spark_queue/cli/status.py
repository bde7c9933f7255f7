"""``sparkq status``, ``sparkq peek`` and ``sparkq explain``: looking, and starting nothing.

``sparkq log``: who did what when.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import typer
from pyroaring import BitMap64

from spark_queue.cli.arguments import (
    AsOf,
    JournalPath,
    Json,
    QueueName,
    StorageOptions,
    bad_argument,
    open_target,
    parse_as_of,
    parse_since,
)
from spark_queue.cli.output import ALARM_EXIT_CODE, draw, out, say, show, show_json, styled, table
from spark_queue.clock import SystemClock
from spark_queue.core.records import Kind
from spark_queue.errors import JournalError, check_text
from spark_queue.settings.types import to_text

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import RenderableType
    from rich.text import Text

    from spark_queue.client.journal import Journal

#: Time between two looks of --watch, in seconds.
WATCH_S = 2.0

#: When it looked, by a monotonic clock in milliseconds, and what it saw, by queue.
_Look: TypeAlias = "tuple[int, dict[str, dict[str, Any]]]"

#: Queues that people are shown at first: a terminal has no room for hundreds.
_SHOWN = 40

#: What people see first; the rest is in --json.
_COLUMNS = (
    "queue",
    "paused",
    "queue_depth",
    "available",
    "backlog",
    "delayed",
    "dead_letters",
    "acknowledged",
    "oldest",
    "subscriptions",
    "age_of_oldest_lease",
    "longest_batch",
)


def status(
    journal: JournalPath,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat every 2 s until Ctrl-C.")] = False,
    shows_all: Annotated[bool, typer.Option("--all", help=f"All queues, not the first {_SHOWN} alone.")] = False,
    as_of: AsOf = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show how the queues are doing, those with an alarm first. Starts nothing. Exits with 3 where a queue has an alarm."""
    target, time_or_record = open_target(journal, storage), parse_as_of(as_of)

    def read() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = target.view("status", queue=queue, as_of=time_or_record).to_pylist()
        return rows

    limit = None if shows_all else _SHOWN
    if watch:
        _watch(read, limit=limit, as_json=json)
    rows = read()
    if json:
        show_json(rows)
    elif not rows:
        say(f"The journal has no queues. Next: sparkq apply {journal} queues.toml")
    else:
        _show(rows, limit)
    if any(row["alarm"] for row in rows):
        raise SystemExit(ALARM_EXIT_CODE)


def check(
    journal: JournalPath,
    queue: QueueName,
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only dead letters that died from then on: a date (UTC), or a time with offset."),
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Also messages that are left in the queue.")] = False,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Say how a job went: exits with 3 at new dead letters, an alarm, or batches that nobody has decided about. Starts nothing."""
    found = open_target(journal, storage).queue(queue).check(since=parse_since(since), wants_empty=empty)
    if json:
        letters = [
            {"reason": kind.reason, "error": kind.error, "letters": len(kind.rows), "last": to_text(kind.last_ms)}
            for kind in found.dead_letters
        ]
        undecided = [{"subscription": each.subscription, "attempt": each.attempt, "table": each.table} for each in found.undecided]
        figures = {"alarm": found.alarm, "undecided": undecided, "queue_depth": found.queue_depth}
        show_json({"queue": queue, "is_well": not found.findings, "dead_letters": letters, **figures})
    else:
        say(str(found))
    raise SystemExit(found.exit_code)


def _watch(read: Callable[[], list[dict[str, Any]]], *, limit: int | None, as_json: bool) -> NoReturn:
    """Look again and again: on a terminal in place, elsewhere by appending."""
    from rich.console import Group
    from rich.live import Live

    looks: deque[_Look] = deque()
    if out().is_terminal and not as_json:
        with Live(console=out(), auto_refresh=False) as live:
            while True:
                rows = read()
                paces = map(styled, _paces(looks, _first(rows, limit)))
                live.update(Group(_table(rows, limit), *_notices(rows, limit), *paces), refresh=True)
                time.sleep(WATCH_S)
    while True:
        rows = read()
        if as_json:
            show_json(rows)
        else:
            say(to_text(SystemClock().wall_ms()))
            _show(rows, limit)
            for pace in _paces(looks, _first(rows, limit)):
                say(pace)
        time.sleep(WATCH_S)


def _paces(looks: deque[_Look], rows: list[dict[str, Any]]) -> list[str]:
    """Tell how fast queues drain since the first look that is not too old, and when they are empty if it goes on like that."""
    from spark_queue.views.event_texts import duration, rate
    from spark_queue.views.why_waiting import PACE_MS, Pace

    now_ms = SystemClock().monotonic_ms()
    looks.append((now_ms, {row["queue"]: row for row in rows}))
    while now_ms - looks[0][0] > PACE_MS:
        looks.popleft()
    began_ms, then = looks[0]
    seconds, told = (now_ms - began_ms) / 1_000, []
    for row in rows:
        before = then.get(row["queue"])
        if before is None or not seconds or None in (before["entered"], row["entered"]):
            continue
        came, fell = row["entered"] - before["entered"], before["queue_depth"] - row["queue_depth"]
        if came + fell > 0:
            pace = Pace(rate_in=came / seconds, rate_out=(came + fell) / seconds)
            empty_in_s = pace.empty_in_s(row["queue_depth"])
            end = "" if empty_in_s is None else f"; empty in {duration(empty_in_s)}"
            paces = f"{rate(pace.rate_in)} came, {rate(pace.rate_out)} left"
            told.append(f"Queue '{row['queue']}': in the last {duration(seconds)} {paces}{end}.")
    return told


def _show(rows: list[dict[str, Any]], limit: int | None) -> None:
    draw(_table(rows, limit))
    for notice in _notices(rows, limit):
        draw(notice)


def _first(rows: list[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """Return the queues that are shown, what somebody should look at first; those that are alike stay in their order."""
    return sorted(rows, key=_urgency)[:limit]


def _urgency(row: dict[str, Any]) -> int:
    from spark_queue.core.state.status import urgency

    return urgency(alarm=row["alarm"], paused=row["paused"], dead_letters=row["dead_letters"], depth=row["queue_depth"])


def _table(rows: list[dict[str, Any]], limit: int | None) -> RenderableType:
    # What other instances own counts nowhere else.
    columns = [*_COLUMNS, "remote"] if any(row["remote"] for row in rows) else _COLUMNS
    return table([{**row, **_ages(row)} for row in _first(rows, limit)], columns, needed=_COLUMNS[:3], figures=columns)


def _ages(row: dict[str, Any]) -> dict[str, str]:
    """Return what the table says instead of seconds."""
    from spark_queue.views.event_texts import duration

    holder, batch = row["longest_batch_subscription"], duration(row["longest_batch_seconds"])
    return {
        "oldest": duration(row["seconds_behind"]),
        "age_of_oldest_lease": duration(row["age_of_oldest_lease"]),
        "longest_batch": batch if holder is None else f"{batch}, {holder}",
    }


def _notices(rows: list[dict[str, Any]], limit: int | None) -> list[Text]:
    """Return what somebody should look at, and how many queues are not shown."""
    rest = rows[:0] if limit is None else sorted(rows, key=_urgency)[limit:]
    foreign = {row["message_type"]: row["foreign_files"] for row in rows if row["foreign_files"]}
    notices = [
        styled(str(JournalError("JOURNAL_FOREIGN_APPEND", message_type=message_type, files=files)), "yellow")
        for message_type, files in foreign.items()
    ]
    # The error of a batch may have several lines, and must not look like another alarm.
    alarms = [f"ALARM: queue '{row['queue']}': {row['alarm']}".replace("\n", "\n  ") for row in rows if row["alarm"]]
    claimed = "proxied transfer is on. What a lost owner had delivered may be delivered again."
    notices += [styled(f"Queue '{row['queue']}': {claimed}", "yellow") for row in rows if row["proxied_transfer_allowed"]]
    if rest:
        waiting = sum(bool(row["queue_depth"]) for row in rest)
        told = f"{len(rest):,} more queues, {waiting:,} of them with messages: --all shows them, a queue's name that one."
        notices = [styled(told), *notices]
    return [*notices, *(styled(alarm, "bold red") for alarm in alarms)]


def peek(
    journal: JournalPath,
    queue: QueueName,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows to show.")] = 10,
    view: Annotated[str, typer.Option(help="messages, dead_letters, leases, subscriptions, sink_commits or history.")] = "messages",
    columns: Annotated[str | None, typer.Option(metavar="A,B,…", help="Only these columns, in this order.")] = None,
    next_first: Annotated[
        bool,
        typer.Option(
            "--next", help="Only those that are next, in the order in which they are granted: by priority, the oldest first."
        ),
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Only what matches, also what is done: Spark SQL over the body."),
    ] = None,
    as_of: AsOf = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show the oldest messages of a queue without taking them. Starts nothing."""
    from spark_queue.views.message_search import python_rows

    target = open_target(journal, storage)
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    if where is not None and view != "messages":
        raise bad_argument("--where", where, "left out with --view: it looks for messages, whatever became of them")
    if next_first and (where is not None or view != "messages"):
        raise bad_argument("--next", "given", "left out with --where and with another --view: it is about the messages that wait")
    if where is None:
        found = target.view(view, queue=queue, as_of=parse_as_of(as_of), columns=wanted, limit=limit, next_first=next_first)
        names, rows = found.column_names, python_rows(found)
    else:
        rows = _find(target, queue, where, as_of=parse_as_of(as_of), columns=wanted, limit=limit)
        names = list(rows[0]) if rows else []
    if json:
        show_json(rows)
        return
    if not rows:
        none = f"View '{view}' of queue '{queue}' is empty." if where is None else f"No message that came into '{queue}' matches."
        say(f"Queue '{queue}' has no message that may be granted now." if next_first else none)
        return
    # Columns that say nothing of any row would only crowd out the others.
    shown = [name for name in names if wanted is not None or name == "bookmark" or any(row[name] for row in rows)]
    # What a message is called comes first; its body may be wide.
    shown.sort(key=lambda name: name != "bookmark" and wanted is None)
    silent = len(names) - len(shown)
    # Who chose columns gets them all; of others what the message is called, and how it stands.
    draw(table(rows, shown, needed=None if wanted else [name for name in ("bookmark", "state") if name in shown]))
    if where is not None:
        say(f"The life of one: sparkq explain {journal} {queue} BOOKMARK")
    if silent:
        say(f"{silent:,} empty column(s) are hidden; --columns or --json shows them.")


def _find(
    target: Journal, queue: str, where: str, *, as_of: datetime | int | None, columns: Sequence[str] | None, limit: int
) -> list[dict[str, Any]]:
    """Return the oldest messages that match a filter, in whatever state they are, as the page finds them."""
    from spark_queue.core.definitions.column_names import ColumnNames
    from spark_queue.core.state.lifecycle import State
    from spark_queue.journal.open import open_journal
    from spark_queue.views import message_search, state_at
    from spark_queue.views.messages import names_in_views

    opened = open_journal(target.store)
    point = state_at(opened, as_of)
    found, after = BitMap64(), 0
    while True:
        chosen = message_search.choose(point.state, queue, states=State, bookmark=None, after=after, where=where)
        more, next_after, _ = message_search.search(opened.traits, chosen, where, limit=limit - len(found))
        found |= more
        if next_after is None or len(found) == limit:
            break
        after = next_after
    values, trouble = message_search.read_values(target.store, chosen.message_type, chosen.columns, found)
    known = message_search.message_rows(point.state.ledger(queue), found, point.now_ms)
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


def explain(
    journal: JournalPath,
    queue: QueueName,
    bookmark: Annotated[int, typer.Argument(metavar="BOOKMARK", help="The message's number.")],
    *,
    shows_all: Annotated[bool, typer.Option("--all", help="Each of many deliveries in a row, not the first and the last.")] = False,
    as_of: AsOf = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Tell the whole life of one message: publish, leases, returns, its end, or what it waits for. Starts nothing."""
    history = open_target(journal, storage).queue(queue).explain(bookmark, parse_as_of(as_of))
    text = history.as_text(shows_all=shows_all)
    more = "" if text == history.as_text(shows_all=True) else "\n--all shows each delivery."
    show(asdict(history), text + more, as_json=json)


#: What people see; the rest is in --json.
_LOG_COLUMNS = ("record", "at", "kind", "queue", "subscription", "messages", "text", "who")


def log(
    journal: JournalPath,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.")] = None,
    *,
    people: Annotated[
        bool, typer.Option("--people", help="Only changes by people: apply, pause, purge, redrive, settle by hand.")
    ] = False,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="Only records of this kind, such as paused.")] = None,
    before: Annotated[int | None, typer.Option(metavar="RECORD", help="Only records before this one.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Records to show.")] = 20,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show the control log, newest first: who did what when. Starts nothing. Changes tell the principal, or user and host."""
    from spark_queue.client.changes import applied_versions
    from spark_queue.journal.reader import open_reader
    from spark_queue.views.tables import record_page

    for name, text in (("QUEUE", queue), ("--kind", kind)):
        if text is not None:
            check_text(text, key=name, where="the arguments")
        if text == "":
            raise bad_argument(name, text, "a name")
    opened = open_reader(open_target(journal, storage).store)
    all_rows = opened.record_rows()
    page = record_page(all_rows, queue=queue, kind=kind, by_people=people, before=before, limit=limit)
    rows = [{**asdict(row), "at": to_text(row.at_ms)} for row in page.rows]
    applied = [row for row in rows if row["kind"] == Kind.DEFINITIONS_APPLIED]
    versions = applied_versions(all_rows) if applied else []
    shown = {row["record"] for row in applied}
    changes = {newer.record: newer.changes_since(older) for newer, older in pairwise(versions) if newer.record in shown}
    for row in applied:
        row["changes"] = changes.get(row["record"], [])
    if json:
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
