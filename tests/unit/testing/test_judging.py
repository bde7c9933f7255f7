"""A change is judged by the tests that the repository names for its module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.judging import judging_tests
from tests.source_tree import ROOT
from tests.unit.test_where_tests_are import HEADING

ROWS = """\
| `state/lease.py` | `one`, `two` | `simulation/test_s.py`, `contract/test_c.py`, `unit/core/test_z.py`, `unit/core/test_lease.py` |
| `lease.py` | | `acceptance/test_a.py`, `integration/test_i.py`, `model/test_m.py` |
"""
FILES = ("core/test_a.py", "journal/test_a.py", "journal/deep/test_rows.py", "journal/world.py", "test_settings.py")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a repository with a table and a few unit tests."""
    for name in FILES:
        path = tmp_path / "tests" / "unit" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "tests" / "README.md").write_text(HEADING + ROWS, encoding="utf-8")
    return tmp_path


def told(module: str, root: Path) -> list[str]:
    return [name.removeprefix("tests/") for name in judging_tests(f"spark_queue/{module}", root)]


def test_the_table_names_the_tests_of_the_core_cheap_ones_and_the_namesake_first(root: Path) -> None:
    scenarios = "unit/core/test_scenarios.py"
    assert told("core/state/lease.py", root) == [
        "unit/core/test_lease.py", scenarios, "unit/core/test_z.py", "contract/test_c.py", "simulation/test_s.py",
    ]  # fmt: skip
    assert told("core/lease.py", root) == ["model/test_m.py", "integration/test_i.py", "acceptance/test_a.py"]


def test_the_mirrored_folder_judges_other_packages_and_modules_without_a_row(root: Path) -> None:
    assert told("journal/rows.py", root) == ["unit/journal/deep/test_rows.py", "unit/journal/test_a.py"]
    assert told("journal/lease.py", root) == ["unit/journal/deep/test_rows.py", "unit/journal/test_a.py"]
    assert told("core/state/__init__.py", root) == ["unit/core/test_a.py"]


def test_one_file_may_mirror_a_package_or_a_module(root: Path) -> None:
    assert told("settings/read.py", root) == told("settings.py", root) == ["unit/test_settings.py"]


def test_everything_judges_what_has_no_tests_of_its_own(root: Path) -> None:
    everything = ["unit/core/test_a.py", "unit/journal/deep/test_rows.py", "unit/journal/test_a.py", "unit/test_settings.py"]
    assert told("clock.py", root) == told("following/history.py", root) == told("__init__.py", root) == everything


def test_every_module_has_judges_that_are_there() -> None:
    modules = [path.relative_to(ROOT).as_posix() for path in (ROOT / "spark_queue").rglob("*.py")]
    named = {module: judging_tests(module) for module in modules}
    assert [module for module, tests in named.items() if not tests] == []
    assert {name for tests in named.values() for name in tests if not (ROOT / name).is_file()} == set()
