"""What people read, README.md and every page of docs/: its text, its examples, its fenced blocks."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.source_tree import ROOT

_EXAMPLE = re.compile(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```\n", re.DOTALL)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page."""

    #: Relative to the repository, with forward slashes.
    path: str
    text: str

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCED.sub("", self.text)

    @property
    def anchors(self) -> set[str]:
        """What a link may name behind ``#``: its headings."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}

    def links(self) -> list[tuple[str, str]]:
        """List its links that stay in the repository: path there, which is this page's own for none, and anchor."""
        found = re.findall(r"\]\(([^)\s#]*)#?([^)\s]*)\)", self.prose)
        folder = posixpath.dirname(self.path)
        return [
            (posixpath.normpath(posixpath.join(folder, path)) if path else self.path, anchor)
            for path, anchor in found
            if not path.startswith("https://")
        ]


def pages() -> list[Page]:
    """Read README.md and every page of docs/."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [Page(path=path.relative_to(ROOT).as_posix(), text=path.read_text(encoding="utf-8")) for path in paths]


def page(path: str) -> Page:
    """Return one page by its path in the repository."""
    return next(found for found in pages() if found.path == path)


def example_names() -> list[str]:
    """List the names of all examples, as often as they stand there."""
    return [found[1] for one in pages() for found in _EXAMPLE.finditer(one.text)]


def example(name: str) -> str:
    """Return the code, or the definitions, of an example that a test runs."""
    return next(found[2] for one in pages() for found in _EXAMPLE.finditer(one.text) if found[1] == name)


def blocks(language: str) -> list[str]:
    """Return every fenced block of a language, page by page."""
    return [text for one in pages() for found, text in _BLOCK.findall(one.text) if found == language]


def run_example(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an example as a program of its own in a folder, and give what it printed and its exit code."""
    (folder / f"{name}.py").write_text(example(name), encoding="utf-8")
    return run_file(f"{name}.py", *arguments, folder=folder)


def run_file(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of a folder, and give what it printed and its exit code."""
    # The checkout stands for the installed package.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, name, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def run_commands(name: str, *, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an example of shell commands in a folder, up to the first that fails, and give what it printed and its exit code."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # As wide as a person's terminal at its widest: tables are not cut.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "COLUMNS": "300"}
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", example(name)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
