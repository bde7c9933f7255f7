"""``sparkq status``: looking, and starting nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import typer

from spark_queue.cli.arguments import AsOf, QueueName, parse_as_of, parse_since
from spark_queue.cli.output import ALARM_EXIT_CODE, draw, out, say, show_json, styled, table
from spark_queue.cli.verb import OF_STORE, VerbTarget, verb
from spark_queue.clock import SystemClock
from spark_queue.errors import JournalError
from spark_queue.settings.timestamps import to_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


#: Time between two looks of --watch, in seconds.
WATCH_S = 2.0

#: The time of a look, by a monotonic clock in milliseconds, and the figures that it found, by queue.
_Look: TypeAlias = "tuple[int, dict[str, dict[str, Any]]]"

#: Queues that people are shown at first: a terminal has no room for hundreds.
_SHOWN = 40

#: Columns for people; the rest is in --json.
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


@verb(OF_STORE)
def status(
    target: VerbTarget,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat every 2 s until Ctrl-C.")] = False,
    shows_all: Annotated[bool, typer.Option("--all", help=f"All queues, not only the first {_SHOWN}.")] = False,
    as_of: AsOf = None,
) -> None:
    """Show how the queues are doing, those with an alarm first. Starts nothing. Exits with 3 if a queue has an alarm."""
    journal, time_or_record = target.journal, parse_as_of(as_of)

    def read() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = journal.view("status", queue=queue, as_of=time_or_record).to_pylist()
        return rows

    limit = None if shows_all else _SHOWN
    if watch:
        _watch(read, target.path, limit=limit, as_json=target.as_json)
    rows = read()
    if target.as_json:
        show_json(rows)
    elif not rows:
        say(f"The journal has no queues. Next: sparkq apply {target.path} queues.toml")
    else:
        _show(rows, limit, target.path)
    if any(row["alarm"] for row in rows):
        raise SystemExit(ALARM_EXIT_CODE)


@verb(OF_STORE)
def check(
    target: VerbTarget,
    queue: QueueName,
    *,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help=("Only dead letters that died at this time or later: a date (UTC), or a time with offset.")
        ),
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Also count messages left in the queue as a finding.")] = False,
) -> None:
    """Report how a job went. Exits with 3 if there are new dead letters, an alarm, or batches in doubt. Starts nothing."""
    found = target.journal.queue(queue).check(since=parse_since(since), wants_empty=empty)
    if target.as_json:
        letters = [
            {"reason": kind.reason, "error": kind.error, "letters": len(kind.rows), "last": to_text(kind.last_ms)}
            for kind in found.dead_letters
        ]
        in_doubt = [{"subscription": each.subscription, "attempt": each.attempt, "table": each.table} for each in found.in_doubt]
        figures = {"alarm": found.alarm, "in_doubt": in_doubt, "queue_depth": found.queue_depth}
        show_json({"queue": queue, "is_well": not found.findings, "dead_letters": letters, **figures})
    else:
        say(str(found))
    raise SystemExit(found.exit_code)


def _watch(read: Callable[[], list[dict[str, Any]]], path: str, *, limit: int | None, as_json: bool) -> NoReturn:
    """Look again and again: on a terminal in place, elsewhere by appending."""
    from rich.console import Group
    from rich.live import Live

    looks: deque[_Look] = deque()
    if out().is_terminal and not as_json:
        with Live(console=out(), auto_refresh=False) as live:
            while True:
                rows = read()
                paces = map(styled, _paces(looks, _first(rows, limit)))
                live.update(Group(_table(rows, limit), *_notices(rows, limit, path), *paces), refresh=True)
                time.sleep(WATCH_S)
    while True:
        rows = read()
        if as_json:
            show_json(rows)
        else:
            say(to_text(SystemClock().wall_ms()))
            _show(rows, limit, path)
            for pace in _paces(looks, _first(rows, limit)):
                say(pace)
        time.sleep(WATCH_S)


def _paces(looks: deque[_Look], rows: list[dict[str, Any]]) -> list[str]:
    """Return the pace of queues since the first look that is not too old, and the time until each is empty, as texts."""
    from spark_queue.views.pace import PACE_MS, Pace
    from spark_queue.views.quantities import duration, rate

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


def _show(rows: list[dict[str, Any]], limit: int | None, path: str) -> None:
    draw(_table(rows, limit))
    for notice in _notices(rows, limit, path):
        draw(notice)


def _first(rows: list[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """Return the queues that are shown, the most urgent first; those that are alike stay in their order."""
    return sorted(rows, key=_urgency)[:limit]


def _urgency(row: dict[str, Any]) -> int:
    from spark_queue.core.state.status import urgency

    return urgency(alarm=row["alarm"], paused=row["paused"], dead_letters=row["dead_letters"], depth=row["queue_depth"])


def _table(rows: list[dict[str, Any]], limit: int | None) -> RenderableType:
    # Messages that other instances own count nowhere else.
    columns = [*_COLUMNS, "remote"] if any(row["remote"] for row in rows) else _COLUMNS
    return table([{**row, **_ages(row)} for row in _first(rows, limit)], columns, needed=_COLUMNS[:3], figures=columns)


def _ages(row: dict[str, Any]) -> dict[str, str]:
    """Return the texts of the table in place of seconds."""
    from spark_queue.views.quantities import duration

    holder, batch = row["longest_batch_subscription"], duration(row["longest_batch_seconds"])
    return {
        "oldest": duration(row["seconds_behind"]),
        "age_of_oldest_lease": duration(row["age_of_oldest_lease"]),
        "longest_batch": batch if holder is None else f"{batch}, {holder}",
    }


def _notices(rows: list[dict[str, Any]], limit: int | None, path: str) -> list[Text]:
    """Return the alarms, and the number of queues that are not shown, in lines."""
    rest = rows[:0] if limit is None else sorted(rows, key=_urgency)[limit:]
    foreign = {row["message_type"]: row["foreign_files"] for row in rows if row["foreign_files"]}
    notices = [
        styled(str(JournalError("JOURNAL_FOREIGN_APPEND", message_type=message_type, files=files)), "yellow")
        for message_type, files in foreign.items()
    ]
    notices += [styled(each) for each in dict.fromkeys(_table_notice(row, path) for row in rows if row["table"])]
    # The error of a batch may have several lines, and must not look like another alarm.
    alarms = [f"ALARM: queue '{row['queue']}': {row['alarm']}".replace("\n", "\n  ") for row in rows if row["alarm"]]
    claimed = "proxied transfer is on. Messages that a lost owner had delivered may be delivered again."
    notices += [styled(f"Queue '{row['queue']}': {claimed}", "yellow") for row in rows if row["proxied_transfer_allowed"]]
    if rest:
        waiting = sum(bool(row["queue_depth"]) for row in rest)
        told = f"{len(rest):,} more queues, {waiting:,} of them with messages: add --all to see them, or name one."
        notices = [styled(told), *notices]
    return [*notices, *(styled(alarm, "bold red") for alarm in alarms)]


def _table_notice(row: dict[str, Any], path: str) -> str:
    """Return how far the table was read that a queue's message type follows, and what was passed over there."""
    from spark_queue.views.table_notice import table_notice

    return table_notice(
        path, row["message_type"], table=row["table"], version=row["table_version"], behind=row["table_versions_behind"],
        is_set_aside=row["table_set_aside"], changes=row["table_changes"], rows_passed=row["table_rows_passed"],
    )  # fmt: skip
