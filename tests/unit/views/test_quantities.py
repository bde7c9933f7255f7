"""Rates and time spans as people read them, at the edges of each form."""

from __future__ import annotations

import math

import pytest

from spark_queue.views.quantities import duration, rate


@pytest.mark.parametrize(
    ("per_second", "told"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0, "0"),
        (1234.6, "1,235/s"),
        (100, "100/s"),
        (99.9, "99.9/s"),
        (1, "1.0/s"),
        (0.5, "30/min"),
        (0.1 / 60, "0.1/min"),
        (0.00165, "5.9/h"),
        (0.001, "3.6/h"),
    ],
)
def test_a_rate_is_told_by_the_unit_that_suits_it(per_second: float | None, told: str) -> None:
    assert rate(per_second) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0, "0.0 s"),
        (9.9, "9.9 s"),
        (10, "10 s"),
        (59.6, "1 min 0 s"),
        (-61, "−1 min 1 s"),
        (3_600, "1 h 0 min"),
        (3_719, "1 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_time_span_is_told_in_its_two_largest_units(seconds: float | None, told: str) -> None:
    assert duration(seconds) == told
