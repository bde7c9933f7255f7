"""A journal with a past, made once, which tests only look at."""

from __future__ import annotations

import pytest

from tests.unit.dashboard.dashboard_world import DashboardWorld, busy_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> DashboardWorld:
    return busy_world(tmp_path_factory.mktemp("dashboard"))
