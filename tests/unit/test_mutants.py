"""Planted bugs stay plantable: each one's text stands once in the product, and its tests exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.__main__ import of_changed
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant, sources
from tests.source_tree import ROOT


@pytest.fixture(scope="module")
def product() -> list[tuple[Path, str]]:
    """Read the product once for all bugs: to read it for each took longer than to look for it."""
    return list(sources(ROOT))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_planted(mutant: Mutant, product: list[tuple[Path, str]]) -> None:
    assert len(mutant.places_in(product)) == 1
    assert mutant.was != mutant.becomes
    for test in mutant.tests:
        assert (ROOT / test.split("::")[0]).exists()


def test_there_are_at_least_thirty_and_no_two_are_called_the_same() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_a_push_plants_bugs_where_something_changed_and_takes_turns_where_they_are_many(tmp_path: Path) -> None:
    (tmp_path / "spark_queue").mkdir()
    for name in "abc":
        (tmp_path / "spark_queue" / f"{name}.py").write_text(f"{name} = 1")
    mutants = [Mutant(name, f"{name} = 1", f"{name} = 2", (f"tests/test_{name}.py::test",)) for name in "abc"]

    def names(*changed: str, most: int = 3, turn: int = 0) -> str:
        return "".join(mutant.name for mutant in of_changed(mutants, changed, root=tmp_path, most=most, turn=turn))

    assert names() == names("README.md") == ""
    assert names("spark_queue/b.py") == "b"
    assert names("tests/test_c.py", "spark_queue/a.py") == "ac"
    of_folder = [Mutant("d", "a = 1", "a = 2", ("tests/folder",))]
    assert of_changed(of_folder, ["tests/folder/test_d.py"], root=tmp_path, most=3, turn=0) == of_folder
    assert of_changed(of_folder, ["tests/folder_of_others.py"], root=tmp_path, most=3, turn=0) == []
    everything = [f"spark_queue/{name}.py" for name in "abc"]
    assert [names(*everything, most=2, turn=turn) for turn in (3, 4, 5)] == ["ab", "bc", "ca"]
