"""Which tests judge a change of a module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.source_tree import ROOT
from tests.unit.test_where_tests_are import SCENARIOS, table

#: What costs more comes later: the first test that fails ends a run.
_SUITES = ("unit", "contract", "model", "simulation", "integration", "acceptance")


def judging_tests(path: str, root: Path = ROOT) -> tuple[str, ...]:
    """Return the test files that must notice a change of the module at `path`, cheap ones and its namesake first.

    For a module of the core tests/README.md names them. For any other they are the folder or the file of unit tests that mirrors
    its package, and where there is neither, all unit tests.
    """
    package, module = Path(path).parts[1], Path(path).stem
    inside = path.removeprefix("spark_queue/core/")
    named = _named(root)
    found = _files_of(named[inside]) if inside in named else _mirror(root / "tests" / "unit", Path(package).stem)
    suites = {name: _SUITES.index(Path(name).parts[1]) for name in found}
    return tuple(sorted(found, key=lambda name: (suites[name], Path(name).stem != f"test_{module}")))


@cache
def _named(root: Path) -> dict[str, list[str]]:
    return dict(table((root / "tests" / "README.md").read_text(encoding="utf-8")))


def _files_of(covering: Iterable[str]) -> list[str]:
    """Return the test files of a row, each once; one file runs all scenarios."""
    runner = "unit/core/test_scenarios.py"
    return list(dict.fromkeys(f"tests/{runner if name.startswith(SCENARIOS) else name}" for name in covering))


@cache
def _mirror(unit: Path, package: str) -> list[str]:
    own = sorted((unit / package).rglob("test_*.py")) or [path for path in [unit / f"test_{package}.py"] if path.exists()]
    return [path.relative_to(unit.parents[1]).as_posix() for path in own or sorted(unit.rglob("test_*.py"))]
