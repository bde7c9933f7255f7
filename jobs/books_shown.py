"""What a demo tells while it runs, and the books at its end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from reconcile import Entry

console = Console(highlight=False)
_began_s = time.monotonic()


def say(text: str) -> None:
    """Tell what happens, and when."""
    console.print(f"[dim]{time.monotonic() - _began_s:4.0f} s[/] {text}", soft_wrap=True)


def show_books(entries: Sequence[Entry]) -> bool:
    """Show each entry, expected and found; returns whether the books balance."""
    books = Table("", "expected", "found", "", title="The books", title_justify="left")
    for entry in entries:
        books.add_row(entry.what, _figure(entry.expected), _figure(entry.found), "ok" if entry.holds else "[bold red]WRONG[/]")
    console.print(books)
    balanced = all(entry.holds for entry in entries)
    say("[bold green]the books balance[/]" if balanced else "[bold red]the books do not balance[/]")
    return balanced


def _figure(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
