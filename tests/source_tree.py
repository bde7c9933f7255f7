"""The repository's own files, parsed, for the tests that read code."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]

_TEXT_SUFFIXES = frozenset(
    {"", ".conf", ".ipynb", ".lock", ".md", ".properties", ".py", ".scenario", ".sh", ".svg", ".toml", ".yaml", ".yml"}
)
_FOLDERS = (".ci", ".github", "conf", "docs", "jobs", "notebooks", "spark_queue", "tests", "tools")


@dataclass(frozen=True)
class SourceFile:
    """One file of the repository, or a snippet that stands for one."""

    #: Relative to the repository, with forward slashes.
    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree; empty for files that are not Python."""
        tree = ast.parse(self.text if self.path.endswith(".py") else "", filename=self.path)
        # All trees are a million objects that stay: each look of the collector for cycles through them took more than a second.
        gc.freeze()
        return tree

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
        SourceFile(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8", errors="replace")) for path in _text_paths()
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
