"""Planted bugs stay plantable: each one's text stands once in the product, and its tests exist."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.source_tree import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_planted(mutant: Mutant) -> None:
    assert len(mutant.places(ROOT)) == 1
    assert mutant.was != mutant.becomes
    for test in mutant.tests:
        assert (ROOT / test.split("::")[0]).exists()


def test_there_are_at_least_thirty_and_no_two_are_called_the_same() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30
