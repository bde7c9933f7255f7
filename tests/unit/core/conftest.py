"""What tests of several instances share."""

from __future__ import annotations

import pytest

from tests.fake_clock import FakeClock
from tests.instances import Instance


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pair(clock: FakeClock) -> tuple[Instance, Instance]:
    """Make two instances that pull from each other."""
    return Instance("frankfurt", ["virginia"], clock), Instance("virginia", ["frankfurt"], clock)
