"""Texts name only what is there: every link leads to a file and a heading, every path exists, scripts import what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.source_tree import ROOT, SourceFile, text_files

#: Where a path in backquotes is meant from the root of the repository.
NAMES_PATHS = ("CONTRIBUTING.md", "docs/design.md", "docs/semantics.md", "SECURITY.md")

_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([\w-]+))?\)")
_PATH = re.compile(r"`((?:\.ci|conf|docs|jobs|spark_queue|tests|tools)/[\w./*-]+|[A-Z]+\.md|Makefile)`")
_IMPORT = re.compile(r"from (spark_queue[\w.]*) import (\w+)")


def anchors(text: str) -> set[str]:
    """Return the names by which the headings of a text can be linked."""
    told = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in told}


def problems(file: SourceFile) -> Iterator[str]:
    """Say which links and paths of a text lead nowhere."""
    here = (ROOT / file.path).parent
    for number, line in enumerate(file.text.splitlines(), start=1):
        for path, anchor in _LINK.findall(line):
            target = here / path if path else ROOT / file.path
            if not target.exists():
                yield file.error(number, f"the link to {path} leads nowhere")
            elif anchor and anchor not in anchors(target.read_text(encoding="utf-8") if path else file.text):
                yield file.error(number, f"{path or 'this text'} has no heading #{anchor}")
        for path in _PATH.findall(line) if file.path in NAMES_PATHS else ():
            if not any(ROOT.glob(path)):
                yield file.error(number, f"there is no {path}")
        # No type checker reads the Python of a shell script.
        for package, name in _IMPORT.findall(line):
            if not hasattr(import_module(package), name) and find_spec(f"{package}.{name}") is None:
                yield file.error(number, f"there is no {package}.{name}")


def test_texts_lead_somewhere() -> None:
    found = [problem for file in text_files() if file.path.endswith((".md", ".sh")) for problem in problems(file)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("see [this](docs/nothing.md)", "the link to docs/nothing.md leads nowhere"),
        ("\nsee [this](docs/design.md#no-such-heading)", "docs/design.md has no heading #no-such-heading"),
        ("# Here\n\n[there](#there)", "this text has no heading #there"),
        ("in `spark_queue/core/nowhere.py`", "there is no spark_queue/core/nowhere.py"),
        ("in `tests/unit/no_*.py`", "there is no tests/unit/no_*.py"),
        ("python -c 'from spark_queue import nobody'", "there is no spark_queue.nobody"),
    ],
)
def test_what_leads_nowhere_is_named(text: str, message: str) -> None:
    [problem] = problems(SourceFile("CONTRIBUTING.md", text))
    assert problem == f"CONTRIBUTING.md:{len(text.splitlines())}: error: {message}"


def test_what_leads_somewhere_is_not_named() -> None:
    text = (
        "# Set up, and go\n[a](docs/design.md#2-words) [b](#set-up-and-go) [c](https://example.org/x) `tests/unit/test_t*.py` `x/y`"
    )
    assert list(problems(SourceFile("CONTRIBUTING.md", text))) == []


_VERSION = re.compile(r"\bpyarrow (\d+)")


def test_texts_name_the_oldest_pyarrow_that_the_package_takes() -> None:
    [oldest] = re.findall(r'"pyarrow>=(\d+)', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    texts = [file for file in text_files() if file.path.startswith("docs/") and file.path.endswith(".md")]
    found = {(file.path, version) for file in texts for version in _VERSION.findall(file.text)}
    assert {path for path, _ in found} >= {"docs/platforms/databricks.md", "docs/platforms/fabric.md"}
    assert {version for _, version in found} == {oldest}
