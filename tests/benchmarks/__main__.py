"""Run benchmarks, print what they measured, and keep it in RESULTS.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.benchmarks import report
from tests.benchmarks.catalogue import BENCHMARKS
from tests.benchmarks.figure import Bench, Figure, NotMeasuredError, shown
from tests.source_tree import ROOT

RUNS = 5

console = Console(stderr=True)


def main(arguments: Sequence[str]) -> int:
    """Measure what was asked for; the exit code tells whether every budget held."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", choices=BENCHMARKS, help=f"one of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"how often to measure (default {RUNS}); the median counts")
    parser.add_argument("--keep-results", action="store_true", help="leave RESULTS.md as it is")
    given = parser.parse_args(arguments)
    figures: list[Figure] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="spark_queue-bench-", dir=_scratch()) as place:
        _stay_inside(Path(place))
        for name in given.only or BENCHMARKS:
            try:
                found = _run(name, Path(place) / name, given.runs)
                if not given.keep_results:
                    report.store(found, command=f"python -m tests.benchmarks --only {name} --runs {given.runs}")
                figures += found
            except Exception:  # noqa: BLE001 - an hour of figures of others must not be lost.
                console.print_exception()
                failed.append(name)
    Console().print(report.table(figures))
    if failed:
        console.print(f"Not measured, since something raised: {', '.join(failed)}.")
    return 0 if not failed and all(figure.holds is not False for figure in figures) else 1


def _run(name: str, place: Path, runs: int) -> list[Figure]:
    place.mkdir()
    figures = []
    console.rule(f"{name}", align="left")
    try:
        for figure in BENCHMARKS[name](Bench(place=place, runs=runs)):
            console.print(f"{figure.row}: {shown(figure.value)} {figure.unit}  [dim]{figure.note}[/]", soft_wrap=True)
            figures.append(figure)
    except NotMeasuredError as reason:
        console.print(f"{name} is left out: {reason}.")
    return figures


def _scratch() -> Path:
    """Return the repository's own scratch directory: a temporary one may lie in memory, and would flatter every commit."""
    scratch = ROOT / "build"
    scratch.mkdir(exist_ok=True)
    return scratch


def _stay_inside(place: Path) -> None:
    """Keep tokens, locks and logs of the coordinators out of the user's own directories."""
    for variable in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        directory = place / variable.lower()
        directory.mkdir(mode=0o700)
        os.environ[variable] = str(directory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
