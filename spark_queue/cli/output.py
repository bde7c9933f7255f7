"""How verbs speak: tables for people, JSON for programs, and a progress bar for what takes long.

What draws is loaded when it is first used, so that a verb's declaration, which help reads, may import from here.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from spark_queue.errors import SparkQueueError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

#: Cells of tables for people are cut to this many characters.
CELL_CHARACTERS = 60

#: Least width of a column that can be read, and what its border and margins take, in characters.
NARROWEST, _BORDER = 5, 3

#: Width of tables where nobody's terminal gives one, in characters.
WIDE = 200


@cache
def out() -> Console:
    """Return where tables and coloured lines are printed for people; plain lines go through `typer.echo`."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


@cache
def err() -> Console:
    """Return where people are told of what goes on."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def show(value: Any, text: str, *, as_json: bool) -> None:
    """Print what a verb did: a value for programs, or text for people."""
    if as_json:
        show_json(value)
    else:
        typer.echo(text)


def show_json(value: Any) -> None:
    """Print a value as JSON; times as ISO-8601, bytes as base64."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def show_error(refusal: SparkQueueError, *, as_json: bool) -> None:
    """Print an error, which carries its code, and what was noted to it on its way."""
    text = " ".join([str(refusal), *getattr(refusal, "__notes__", ())])
    if as_json:
        message = {"error": {"code": refusal.code, "message": text, "facts": dict(refusal.facts)}}
        sys.stderr.write(json.dumps(message, default=_plain) + "\n")
    else:
        err().print(f"[bold red]error[/] {_escaped(text)}", soft_wrap=True)


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, title: str | None = None, cut: bool = True) -> Table:
    """Make a table for people; long cells are cut, or fold into several lines."""
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", header_style="bold")
    for name in columns:
        drawn.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        drawn.add_row(*(_escaped(_cell(row.get(name), cut=cut)) for name in columns))
    return drawn


def columns_that_fit() -> int:
    """Return how many columns a table for people may have, before it shows nothing but its borders."""
    return max(1, (out().width - 1) // (NARROWEST + _BORDER))


def progress(*, counted: bool = False) -> Progress:
    """Make a progress bar on stderr; it vanishes into a plain line where nobody watches."""
    from rich import progress as rich

    amount = [rich.MofNCompleteColumn()] if counted else [rich.TextColumn("{task.percentage:>3.0f}%")]
    return rich.Progress(
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        *amount,
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        console=err(),
        transient=True,
    )


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")


def _cell(value: Any, *, cut: bool) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    text = value.isoformat(timespec="seconds") if isinstance(value, datetime) else _plain(value)
    return text if not cut or len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


def _plain(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
