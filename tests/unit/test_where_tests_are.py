"""tests/README.md says where the tests of each module of the core are: every module is there once, and what it names exists."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.source_tree import ROOT

README = ROOT / "tests" / "README.md"
CORE = ROOT / "spark_queue" / "core"
SCENARIOS = "unit/core/scenarios"
HEADING = "## The core, module by module\n"

_ROW = re.compile(r"(?m)^\| `([\w/]+\.py)` \|([^|]*)\|([^|]*)\|$")


def table(text: str) -> list[tuple[str, list[str]]]:
    """Return each row of the table: its module, and the files that cover it, as paths below ``tests``."""
    rows = []
    for module, scenarios, tests in _ROW.findall(text.split(HEADING, 1)[1]):
        told = [f"{SCENARIOS}/{name}.scenario" for name in re.findall(r"`(\w+)`", scenarios)]
        rows.append((module, told + re.findall(r"`([^`]+)`", tests)))
    return rows


def problems(rows: list[tuple[str, list[str]]], modules: Collection[str], files: Collection[str]) -> Iterator[str]:
    """Say what is missing in the table, and what it names that is not there."""
    named = [module for module, _ in rows]
    yield from (f"{module} has no row" for module in sorted(set(modules) - set(named)))
    yield from (f"{module} is no module of the core" for module in sorted(set(named) - set(modules)))
    yield from (f"{module} has two rows" for module in sorted({each for each in named if named.count(each) > 1}))
    for module, covering in rows:
        if not covering:
            yield f"{module} names no test"
        yield from (f"{module} names {name}, which is not there" for name in covering if name not in files)


def test_every_module_of_the_core_names_its_tests() -> None:
    modules = {path.relative_to(CORE).as_posix() for path in CORE.rglob("*.py") if path.name != "__init__.py"}
    assert list(problems(table(README.read_text(encoding="utf-8")), modules, _files())) == []


def test_every_scenario_file_and_test_of_the_core_is_named() -> None:
    named = {name for _, covering in table(README.read_text(encoding="utf-8")) for name in covering}
    ours = {name for name in _files() if name.startswith("unit/core/") and Path(name).name.startswith("test_")}
    ours |= {name for name in _files() if name.endswith(".scenario")}
    # It runs the scenarios, which the table names one by one.
    assert sorted(ours - named - {"unit/core/test_scenarios.py"}) == []


def _files() -> set[str]:
    below = ROOT / "tests"
    return {path.relative_to(below).as_posix() for path in below.rglob("*") if path.suffix in {".py", ".scenario"}}


ROWS = {"a.py": "| `a.py` | `x` | `unit/t.py` |", "b.py": "| `b.py` | | |"}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["a.py"], "b.py has no row"),
        (["a.py", "b.py"], "b.py names no test"),
        (["a.py", "a.py"], "a.py has two rows"),
    ],
)
def test_a_table_that_is_not_whole_is_told(rows: list[str], problem: str) -> None:
    text = HEADING + "\n".join(ROWS[row] for row in rows)
    assert problem in list(problems(table(text), set(ROWS), {f"{SCENARIOS}/x.scenario", "unit/t.py"}))


def test_files_and_modules_that_are_gone_are_told() -> None:
    assert list(problems(table(HEADING + ROWS["a.py"]), (), ())) == [
        "a.py is no module of the core",
        f"a.py names {SCENARIOS}/x.scenario, which is not there",
        "a.py names unit/t.py, which is not there",
    ]
