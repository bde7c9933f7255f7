"""Drawing cases: so many of each marked test, other ones in other windows, and each of them in some."""

from __future__ import annotations

import pytest

from tests import drawn_cases

pytest_plugins = ("pytester",)

SUITE = """
import pytest

@pytest.mark.drawn(2)
@pytest.mark.parametrize("case", range(6))
def test_expensive(case): ...

@pytest.mark.parametrize("case", range(3))
def test_cheap(case): ...

@pytest.mark.drawn(4)
@pytest.mark.parametrize("case", range(3))
def test_with_fewer_cases(case): ...
"""


def names(items: list[pytest.Item]) -> list[str]:
    return [item.name for item in items]


def test_a_run_takes_so_many_cases_of_each_marked_test_and_all_of_the_others(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    drawn(n): n cases")
    items = pytester.getitems(SUITE)
    drawn, left = drawn_cases.split(items, window=1)
    assert [name for name in names(items) if name in {*names(drawn), *names(left)}] == names(items)
    assert len([name for name in names(drawn) if "expensive" in name]) == 2
    assert all("expensive" in name for name in names(left))
    assert drawn == [item for item in items if item in drawn], "the order stays"
    assert drawn_cases.split(items, window=1) == (drawn, left), "all processes of a run draw the same"


def test_every_case_is_drawn_by_some_commit(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    drawn(n): n cases")
    items = pytester.getitems(SUITE)
    assert {name for window in range(60) for name in names(drawn_cases.split(items, window=window)[0])} == set(names(items))
