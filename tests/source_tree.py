"""The repository's own files, parsed, for the tests that read code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

_TEXT_SUFFIXES = frozenset(
    {"", ".conf", ".ipynb", ".lock", ".md", ".properties", ".py", ".scenario", ".sh", ".svg", ".toml", ".yaml", ".yml"}
)
_FOLDERS = (".ci", ".github", "conf", "docs", "jobs", "notebooks", "spark_queue", "tests", "tools")


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file of the repository, or a snippet that stands for one."""

    #: Relative to the repository, with forward slashes.
    path: str
    text: str
    #: Empty for files that are not Python.
    tree: ast.Module = field(repr=False)

    @classmethod
    def parse(cls, path: str, text: str) -> SourceFile:
        """Parse a file's text; what is not Python has an empty tree."""
        return cls(path=path, text=text, tree=ast.parse(text if path.endswith(".py") else "", filename=path))

    def error(self, line: int, text: str) -> str:
        """Return the one-line message of a rule that this file breaks."""
        return f"{self.path}:{line}: error: {text}"

    @property
    def module(self) -> str:
        """The dotted name under which the file is imported."""
        parts = Path(self.path).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def text_files() -> tuple[SourceFile, ...]:
    """Read every text file that people wrote or a release carries."""
    return tuple(
        SourceFile.parse(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8", errors="replace"))
        for path in _text_paths()
    )


def python_files(*beginnings: str) -> list[SourceFile]:
    """List the Python files whose paths begin in one of these ways; all of them without any."""
    return [file for file in text_files() if file.path.endswith(".py") and file.path.startswith(beginnings or ("",))]


def product_files() -> list[SourceFile]:
    """List the Python files that users run."""
    return python_files("spark_queue/", "pyspark_sparkqueue.py", "jobs/")


def _text_paths() -> Iterator[Path]:
    top = (path for path in ROOT.iterdir() if path.is_file() and path.name != ".git")
    below = (path for folder in _FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    for path in sorted([*top, *below]):
        if path.suffix in _TEXT_SUFFIXES and "__pycache__" not in path.parts and ".ipynb_checkpoints" not in path.parts:
            yield path
