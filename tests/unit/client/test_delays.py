"""Delays that callers give with an outcome."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spark_queue.client.delays import to_delay_ms
from spark_queue.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "delay_ms"),
    [(None, None), (timedelta(0), 0), (timedelta(seconds=1.5), 1_500), ("1.5s", 1_500), ("36500d", 3_153_600_000_000)],
)
def test_a_delay_is_read(given: str | timedelta | None, delay_ms: int | None) -> None:
    assert to_delay_ms(given, where="an outcome") == delay_ms


@pytest.mark.parametrize("given", [timedelta(microseconds=-1), timedelta(days=36_501), timedelta.max, "36501d"])
def test_one_that_no_coordinator_would_take_is_refused_before_it_is_sent(given: str | timedelta) -> None:
    """A refused command settles nothing of what it came with."""
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*'retry_after' in an outcome"):
        to_delay_ms(given, where="an outcome")
