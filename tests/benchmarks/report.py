"""The figures as people read them: a table on the console, and the figures section of RESULTS.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.table import Table

from tests.benchmarks.figure import Figure, shown

RESULTS = Path(__file__).with_name("RESULTS.md")

_BEGIN = "<!-- figures: written by `make bench` -->"
_END = "<!-- end of figures -->"
_HEADER = "| row | what | measured | budget | | how |\n|---|---|---|---|---|---|\n"
_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "pyroaring")


def table(figures: Iterable[Figure]) -> Table:
    """Make the console's table."""
    made = Table(title="Budgets", title_justify="left", show_lines=False)
    for heading, justify in (("row", "left"), ("what", "left"), ("measured", "right"), ("budget", "right"), ("", "left")):
        made.add_column(heading, justify=justify)  # type: ignore[arg-type]  # The literals are right; mypy widens them.
    for figure in figures:
        colour = {True: "green", False: "bold red", None: "dim"}[figure.holds]
        made.add_row(figure.row, figure.what, _measured(figure), _budget(figure), f"[{colour}]{_verdict(figure)}[/]")
    return made


def store(figures: Iterable[Figure], *, command: str, path: Path = RESULTS) -> None:
    """Write figures into the results; rows that were not measured this time stay as they are."""
    text = path.read_text()
    before, _, rest = text.partition(_BEGIN)
    section, _, after = rest.partition(_END)
    rows = _rows(section) | {figure.row: _line(figure, command) for figure in figures}
    body = f"{_BEGIN}\n\n{_surroundings()}\n\n{_HEADER}" + "".join(f"{line}\n" for line in rows.values())
    path.write_text(f"{before}{body}\n{_END}{after}")


def _rows(section: str) -> dict[str, str]:
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| row ")]
    return {line.split("|")[1].strip(): line for line in lines}


def _line(figure: Figure, command: str) -> str:
    how = f"{figure.note + '; ' if figure.note else ''}`{command}`"
    return f"| {figure.row} | {figure.what} | {_measured(figure)} | {_budget(figure)} | {_verdict(figure)} | {how} |"


def _measured(figure: Figure) -> str:
    return f"{shown(figure.value)} {figure.unit}"


def _budget(figure: Figure) -> str:
    return "" if figure.budget is None else f"{'≥' if figure.at_least else '≤'} {shown(figure.budget)} {figure.unit}"


def _verdict(figure: Figure) -> str:
    return {True: "holds", False: "MISSED", None: ""}[figure.holds]


def _surroundings() -> str:
    memory_gib = psutil.virtual_memory().total / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory_gib:.0f} GiB of memory; "
        f"Python {platform.python_version()}, {packages}. "
        f"Load average when this was written, the benchmarks' own included: {os.getloadavg()[2]:.1f}."
    )
