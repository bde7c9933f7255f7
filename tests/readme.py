"""README.md as its tests see it: examples that run, and tables that are generated.

``python -m tests.readme`` (``make readme``) writes the tables anew, from the registry and from what a test publishes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from spark_queue.cli.options import expressions_to_markdown, to_markdown
from spark_queue.expression import accepted
from spark_queue.settings import key_rows, option_rows
from tests import ways_in
from tests.source_tree import ROOT

README = ROOT / "README.md"

_GENERATED = re.compile(r"(?P<begin><!-- generated: (?P<name>\w+) -->\n)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL)
_EXAMPLE = re.compile(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```\n", re.DOTALL)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def read() -> str:
    """Give the whole text."""
    return README.read_text(encoding="utf-8")


def generated(text: str) -> str:
    """Give the text with every generated table as the registry has it now."""
    tables = {"keys": to_markdown(key_rows()), "options": to_markdown(option_rows())}
    tables["expressions"] = expressions_to_markdown(accepted())
    tables["values"] = ways_in.to_markdown()
    return _GENERATED.sub(lambda found: f"{found['begin']}{tables[found['name']]}{found['end']}", text)


def example(name: str) -> str:
    """Give the code, or the definitions, of an example that a test runs."""
    return next(found[2] for found in _EXAMPLE.finditer(read()) if found[1] == name)


def blocks(language: str) -> list[str]:
    """Give every fenced block of a language."""
    return [text for found, text in _BLOCK.findall(read()) if found == language]


def run_example(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an example as a program of its own in a folder, and give what it printed and its exit code."""
    (folder / f"{name}.py").write_text(example(name), encoding="utf-8")
    # The checkout stands for the installed package.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, f"{name}.py", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    README.write_text(generated(read()), encoding="utf-8")
