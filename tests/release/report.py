"""The report of a release: what was tried where, how large it is, and how long its import takes."""

from __future__ import annotations

import json
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.source_tree import ROOT

#: Where `make release-check` leaves it; an index gets nothing of it.
FOLDER = ROOT / "build" / "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One way of installing a release that was tried."""

    python: str
    #: wheel or sdist.
    file: str
    #: Its extra; empty for the base.
    extra: str
    packages: int
    size_mb: float
    #: Of `from spark_queue import Journal, Queue`, and of the extra's own module, in seconds.
    import_s: float
    extra_import_s: float | None

    def row(self) -> str:
        """Return it as a row of the table."""
        extra_import = "" if self.extra_import_s is None else f"{self.extra_import_s:.2f}"
        figures = (str(self.packages), f"{self.size_mb:.0f}", f"{self.import_s:.2f}", extra_import)
        cells = (self.python, self.file, self.extra or "–", *figures)
        return f"| {' | '.join(cells)} |"


@dataclass(slots=True)
class Report:
    """Collects what was tried, and writes it down."""

    version: str
    files: list[Path]
    #: The ways that are to be tried: Python, file and extra.
    wanted: list[tuple[str, str, str]]
    tried: list[Tried]

    def begin(self) -> None:
        """Forget the report of an earlier check."""
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)

    def bill(self, name: str, bill: dict[str, Any]) -> None:
        """Write a bill of materials."""
        (FOLDER / f"{name}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")

    def write(self) -> None:
        """Write the report, with what was to be tried and was not."""
        done = {(each.python, each.file, each.extra) for each in self.tried}
        left = [each for each in self.wanted if each not in done]
        missing = [f"- Python {python}, {file}, {extra or 'base'}" for python, file, extra in left]
        lines = [
            f"# spark-queue {self.version}",
            "",
            f"Tried on {platform.system()} {platform.machine()}. Sizes are of all packages together, with bytecode; imports are",
            "those of fresh processes, without the start of Python.",
            "",
            "| File | KB |",
            "|---|---|",
            *(f"| {file.name} | {file.stat().st_size / 1_000:.0f} |" for file in self.files),
            "",
            "| Python | From | Extra | Packages | MB | Import, s | Import of the extra, s |",
            "|---|---|---|---|---|---|---|",
            *(each.row() for each in self.tried),
            "",
            "Not tried, or failed:" if missing else "All ways were tried.",
            *missing,
        ]
        (FOLDER / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
