"""What tests of several packages share."""

from __future__ import annotations

import pytest

from tests.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
