"""A journal with a past, made once, which tests only look at, and one that they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.dashboard.changing import Held
from tests.unit.dashboard.dashboard_world import DashboardWorld, busy_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> DashboardWorld:
    return busy_world(tmp_path_factory.mktemp("dashboard"))


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(tmp_path, monkeypatch)
