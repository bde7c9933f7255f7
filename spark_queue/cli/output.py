"""The output of verbs: tables for people, JSON for programs, and a progress bar for long work.

All output of a verb passes here, since much of it was written by others: bodies, errors, names. It is never markup, and commands
of a terminal in it are shown, not sent.

The library that draws is loaded when it is first used, so that a verb's declaration, which help reads, may import from here.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from spark_queue.errors import SparkQueueError, counted
from spark_queue.settings.shown import shown

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress
    from rich.text import Text

#: Exit code where a queue has an alarm, or a peer needs attention; 2 is that of wrong usage.
ALARM_EXIT_CODE = 3

#: Exit code where there is nothing to do, which schedulers may take for a skipped task.
NOTHING_EXIT_CODE = 4

#: Characters that no terminal is sent: controls (C0 without tab and end of line, DEL, C1), turns of the direction of writing, other
#: ends of lines, and halves of characters, which no stream accepts.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

#: Cells of tables for people are cut to this many characters.
CELL_CHARACTERS = 60

#: Longest word that a table never breaks, in characters: a longer one is a path, or a key.
WORD_CHARACTERS = 24

#: Width of tables where no terminal gives one, in characters.
WIDE = 200


@cache
def out() -> Console:
    """Return the console of tables and coloured lines for people."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


@cache
def err() -> Console:
    """Return the console of warnings and news for people."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(text: str, *, style: str = "", is_news: bool = False) -> None:
    """Print lines for people; news go to stderr, beside the verb's result."""
    if style:
        draw(styled(counted(text), style))
    else:
        typer.echo(harmless(counted(text)), err=is_news)


def warn(kind: str, text: str, *, style: str) -> None:
    """Print a warning for people on stderr, after a word for its kind."""
    err().print(styled(kind, style) + styled(f" {counted(text)}"), soft_wrap=True)


def styled(text: str, style: str = "") -> Text:
    """Return text for people, none of which is markup."""
    from rich.text import Text

    return Text(harmless(text), style=style)


def harmless(text: str) -> str:
    """Return text with commands of a terminal shown as escapes."""
    return _COMMANDS.sub(lambda found: _escape(ord(found[0])), text)


def show_json(value: Any) -> None:
    """Print a value as JSON; times as ISO-8601, bytes as base64, and as Spark does NaN and infinities as texts.

    Commands of a terminal are escaped, and so read as they were.
    """
    text = json.dumps(_numbers_of_json(value), default=_plain, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(_COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
    sys.stdout.flush()


def show_findings(value: Mapping[str, Any], text: str, *, problems: Sequence[str], warnings: Sequence[str], as_json: bool) -> None:
    """Print problems and warnings: as part of a value for programs, or line by line for people before a last text."""
    if as_json:
        show_json({**value, "problems": list(map(counted, problems)), "warnings": list(map(counted, warnings))})
        return
    for warning in warnings:
        say(warning, style="yellow")
    for problem in problems:
        say(problem, style="red")
    say(text)


def show_exact(text: str) -> None:
    """Print text for programs as it is, but to a terminal as people may see it."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def show_error(refusal: SparkQueueError, *, as_json: bool) -> None:
    """Print an error, which carries its code, and the notes that were added to it."""
    text = " ".join([str(refusal), *getattr(refusal, "__notes__", ())])
    if as_json:
        message = {"error": {"code": refusal.code, "message": counted(text), "facts": dict(refusal.facts)}}
        sys.stderr.write(json.dumps(message, default=_plain) + "\n")
    else:
        warn("error", text, style="bold red")


def table(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    title: str | None = None,
    cut: bool = True,
    needed: Collection[str] | None = None,
    figures: Collection[str] = (),
) -> RenderableType:
    """Make a table for people, of columns as wide as their words are. A pipe gets columns without lines around them.

    Values are shown as they can be typed back, in a filter or as an argument; but in columns of `figures` thousands stand apart,
    and truth is yes or no. `cut` cuts long cells, which take several lines otherwise. Columns that are not `needed` are left out
    where they find no room, the last ones first; where the needed ones (by default all) find none, each row becomes a block.
    """
    from rich.box import HEAVY_HEAD
    from rich.console import Group
    from rich.table import Table

    cells = [[harmless(_cell(row.get(name), cut=cut, is_figure=name in figures)) for name in columns] for row in rows]
    texts = {name: [name.replace("_", " "), *(row[index] for row in cells)] for index, name in enumerate(columns)}
    is_seen = sys.stdout.isatty()
    border = 3 if is_seen else 2
    widths = _widths(texts, out().width - is_seen, border, columns if needed is None else needed)
    padding = (0, 1) if is_seen else (0, border, 0, 0)
    if widths is None:
        drawn = Table.grid(padding=(0, 2, 0, 0))
        drawn.title, drawn.title_justify = title, "left"
        for row in cells:
            for name, cell in zip(columns, row, strict=True):
                drawn.add_row(styled(name.replace("_", " "), "bold"), styled(cell))
            drawn.add_row()
        return drawn
    drawn = Table(title=title, title_justify="left", header_style="bold", box=HEAVY_HEAD if is_seen else None, padding=padding)
    for name, width in widths.items():
        drawn.add_column(styled(name.replace("_", " ")), overflow="fold", width=width)
    for row in cells:
        drawn.add_row(*(styled(cell) for name, cell in zip(columns, row, strict=True) if name in widths))
    left_out = [name for name in columns if name not in widths]
    if not left_out:
        return drawn
    return Group(drawn, styled(counted(f"{len(left_out):,} column(s) are hidden for lack of room; --json shows all.")))


def _widths(texts: Mapping[str, Sequence[str]], room: int, border: int, needed: Collection[str]) -> dict[str, int] | None:
    """Return the width of each column that finds room, so that no word is broken; None where the needed ones find none."""
    from rich.cells import cell_len

    least = {
        name: min(WORD_CHARACTERS, max(cell_len(word) for text in each for word in [*text.split(), ""]))
        for name, each in texts.items()
    }
    left = room - sum(least[name] + border for name in needed)
    if left < 0:
        return None
    chosen = set(needed)
    for name in texts:
        if name not in chosen and least[name] + border <= left:
            chosen.add(name)
            left -= least[name] + border
    widths = {name: least[name] for name in texts if name in chosen}
    # The room that is left is shared: columns that want least are served first.
    wanted = {name: max(cell_len(line) for text in texts[name] for line in [*text.splitlines(), ""]) for name in widths}
    for index, name in enumerate(sorted(widths, key=lambda name: wanted[name] - widths[name])):
        more = min(wanted[name] - widths[name], left // (len(widths) - index))
        widths[name] += more
        left -= more
    return widths


def draw(drawn: RenderableType) -> None:
    """Print a result of `table` or `styled`."""
    # Text alone is folded by the terminal.
    out().print(drawn, soft_wrap=hasattr(drawn, "plain"))


def progress(*, counted: bool = False) -> Progress:
    """Make a progress bar on stderr, for a terminal alone: elsewhere it would leave a blank line."""
    from rich import progress as rich

    amount = [rich.MofNCompleteColumn()] if counted else [rich.TextColumn("{task.percentage:>3.0f}%")]
    return rich.Progress(
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        *amount,
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        console=err(),
        transient=True,
        disable=not err().is_interactive,
    )


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _cell(value: Any, *, cut: bool, is_figure: bool) -> str:
    if value is None:
        return "–"
    if is_figure and isinstance(value, bool):
        return "yes" if value else "no"
    if is_figure and isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    text = value.isoformat(timespec="seconds") if isinstance(value, datetime) else shown(value)
    return text if not cut or len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


def _numbers_of_json(value: Any) -> Any:
    """Return a value in which NaN and infinities are texts: JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return shown(value)
    if isinstance(value, Mapping):
        return {_numbers_of_json(name): _numbers_of_json(each) for name, each in value.items()}
    return [_numbers_of_json(each) for each in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
