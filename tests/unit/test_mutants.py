"""Planted bugs stay plantable: each one's text stands once in the product, what it becomes is Python, and its tests exist."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from tests.mutants.__main__ import of_changed
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant, sources
from tests.source_tree import ROOT


def test_every_mutant_can_be_planted() -> None:
    """In one test: a test of each took longer to be begun and ended than to look."""
    product = list(sources(ROOT))
    places = {mutant: mutant.places_in(product) for mutant in MUTANTS}
    assert {mutant.name: len(found) for mutant, found in places.items() if len(found) != 1} == {}
    assert [mutant.name for mutant in MUTANTS if mutant.was == mutant.becomes] == []
    texts = dict(product)
    assert [mutant.name for mutant, [(path, at)] in places.items() if not _can_be_read(path, mutant.planted(texts[path], at))] == []
    named = {test for mutant in MUTANTS for test in mutant.tests}
    assert [test for test in sorted(named) if not _is_there(test)] == []


def _can_be_read(path: Path, text: str) -> bool:
    """Return whether Python can read a file: one that it cannot fails in every test, which proves nothing."""
    with contextlib.suppress(SyntaxError):
        return path.suffix != ".py" or bool(compile(text, path.name, "exec", dont_inherit=True))
    return False


def _is_there(test: str) -> bool:
    path, *names = test.split("::")
    if not (ROOT / path).exists():
        return False
    text = (ROOT / path).read_text(encoding="utf-8") if names else ""
    return all(re.search(rf"^ *(?:def|class) {name.split('[')[0]}\b", text, re.MULTILINE) for name in names)


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
