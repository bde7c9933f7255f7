"""Each window has worlds of its own, and every window those that once failed."""

from __future__ import annotations

import pytest

from tests import seed_window
from tests.simulation import seeds

WORLDS = 120


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[int]]:
    """Return the seeds of the first windows."""
    monkeypatch.setattr(seeds, "SEEDS", WORLDS)
    return {number: _tried(number, monkeypatch) for number in range(3)}


def _tried(number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(seed_window, "WINDOW", number)
    run: list[int] = []

    @seeds.over_seeds(every=2, kept=(7, 10_000))
    def check(seed: int) -> None:
        run.append(seed)

    [chunks] = [mark.args[1] for mark in check.pytestmark if mark.name == "parametrize"]
    for chunk in chunks:
        check(chunk)
    return run


def test_windows_follow_each_other(tried: dict[int, list[int]]) -> None:
    new = [seed for run in tried.values() for seed in run if seed not in (7, 10_000)]
    assert sorted([*new, 7]) == list(range(3 * WORLDS // 2))


def test_what_once_failed_is_in_every_window_once(tried: dict[int, list[int]]) -> None:
    assert {number: (run.count(7), run.count(10_000)) for number, run in tried.items()} == dict.fromkeys(tried, (1, 1))
