"""What tests of the coordinator share."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.loop_world import World


@pytest.fixture
def world() -> World:
    """Make a journal in memory, and a reign over it."""
    return World()
