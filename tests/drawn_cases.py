"""Cases of expensive tests: `make test` draws some of each, other ones at each commit, and the long forms run all."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence

import pytest

from tests.seed_window import WINDOW

#: Whether this run draws; a test file that is run by itself runs every case.
DRAWS = bool(os.environ.get("DRAWN_CASES"))


def split(items: Sequence[pytest.Item], *, window: int = WINDOW) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to run, in their order, and the others: of a test that is marked ``drawn(n)`` n cases run."""
    left: set[str] = set()
    for name, group in itertools.groupby(sorted(items, key=_test), _test):
        cases = list(group)
        mark = cases[0].get_closest_marker("drawn")
        if mark is not None:
            [count] = mark.args
            names = [case.nodeid for case in cases]
            left |= set(names) - set(random.Random(f"{window} {name}").sample(names, min(count, len(names))))
    return [item for item in items if item.nodeid not in left], [item for item in items if item.nodeid in left]


def _test(item: pytest.Item) -> str:
    """Return the name of a test, without its case."""
    return item.nodeid.partition("[")[0]
