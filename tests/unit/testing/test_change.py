"""A change says where it is and what it does, and is planted there."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.change import Change
from tests.mutants.judging import judging_tests
from tests.mutants.operators import changes

PATH = "spark_queue/core/log_tail.py"
TEXT = "def f():\n    return min(a, b)\n"


def test_a_change_is_named_by_its_place_its_operator_and_its_texts() -> None:
    [change] = changes(PATH, TEXT)
    assert change == Change(PATH, line=2, column=12, operator="swap min", start=20, before="min", after="max")
    assert change.name == "spark_queue/core/log_tail.py:2:12 swap min: min → max"


def test_a_name_is_one_short_line() -> None:
    [call] = changes(PATH, f"f(\n  {'a' * 100})")
    assert call.name == f"{PATH}:1:1 leave out call: f( {'a' * 55}… → pass"
    [whole] = changes(PATH, f"f({'a' * 57})")
    assert whole.name == f"{PATH}:1:1 leave out call: f({'a' * 57}) → pass"
    [word] = changes(PATH, "x = not a")
    assert word.name == f"{PATH}:1:5 drop not: not → nothing"


def test_a_change_is_judged_by_the_tests_of_its_module() -> None:
    assert Change(PATH, 2, 12, "swap min", 20, "min", "max").tests == judging_tests(PATH)


def test_a_change_touches_all_lines_of_its_text() -> None:
    [change] = changes(PATH, "\nf(\n  a,\n)\n")
    assert list(change.lines) == [2, 3, 4]


def test_what_does_not_compile_or_says_the_same_makes_no_difference() -> None:
    assert [change.makes_a_difference("while True: f") for change in changes(PATH, "while True: f")] == [False, True]
    [change] = changes(PATH, TEXT)
    assert change.makes_a_difference(TEXT)
    assert not Change(PATH, 2, 12, "swap min", 20, "min", "max)").makes_a_difference(TEXT)
    # In another spelling it says the same.
    assert not Change(PATH, 2, 12, "swap min", 20, "min", "(min)").makes_a_difference(TEXT)


def test_a_change_is_planted_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / PATH
    path.parent.mkdir(parents=True)
    path.write_text(TEXT, encoding="utf-8")
    [change] = changes(PATH, TEXT)
    assert change.plant(tmp_path) == (path, TEXT)
    assert path.read_text(encoding="utf-8") == "def f():\n    return max(a, b)\n"
