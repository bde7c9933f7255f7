"""The figures as people read them: a table on the console, and in RESULTS.md the headlines and a table for each question."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.table import Table

from tests.benchmarks.figure import Figure, shown
from tests.benchmarks.questions import HEADLINES, QUESTIONS, question_of

RESULTS = Path(__file__).with_name("RESULTS.md")

_BEGIN = "<!-- figures: written by `make bench` -->"
_END = "<!-- end of figures -->"
_HEADER = "| row | what | measured | budget | | how |\n|---|---|---|---|---|---|\n"
_HEADLINES_HEADER = "| what | measured | budget | | row |\n|---|---|---|---|---|\n"
#: Bars of a row of `_HEADER`; those of the headlines have fewer.
_CELLS = 7
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
    before, after = text.partition(_BEGIN)[0], text.partition(_END)[2]
    rows = known_rows(text) | {figure.row: _line(figure, command) for figure in figures}
    path.write_text(f"{before}{_BEGIN}\n\n{_body(rows)}\n{_END}{after}")


def known_rows(text: str) -> dict[str, str]:
    """Return the lines of the figures in the results, by row."""
    section = text.partition(_BEGIN)[2].partition(_END)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith(("| row ", "| what "))]
    return {line.split("|")[1].strip(): line for line in lines if line.count("|") >= _CELLS}


def _body(rows: Mapping[str, str]) -> str:
    told = [_HEADLINES_HEADER + "".join(_headline(rows[row]) for row in HEADLINES if row in rows), f"{_surroundings()}\n"]
    for question in QUESTIONS:
        answers = "".join(f"{line}\n" for row, line in rows.items() if question_of(row) == question)
        if answers:
            told.append(f"## {question}\n\n{_HEADER}{answers}")
    return "\n".join(told)


def _headline(line: str) -> str:
    _, row, what, measured, budget, verdict, *_ = line.split("|")
    return f"| {what.strip()} | {measured.strip()} | {budget.strip()} | {verdict.strip()} | {row.strip()} |\n"


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
