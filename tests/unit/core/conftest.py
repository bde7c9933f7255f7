"""What tests of several instances share."""

from __future__ import annotations

import pytest

from tests.fake_clock import FakeClock
from tests.scenario.instances import Instance, two_instances


@pytest.fixture
def pair(clock: FakeClock) -> tuple[Instance, Instance]:
    """Make two instances that pull from each other."""
    return two_instances(clock)


@pytest.fixture
def frankfurt(pair: tuple[Instance, Instance]) -> Instance:
    return pair[0]


@pytest.fixture
def virginia(pair: tuple[Instance, Instance]) -> Instance:
    return pair[1]
