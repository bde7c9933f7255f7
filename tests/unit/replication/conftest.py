"""Honest instances, made once for all attacks on them."""

from __future__ import annotations

import pytest

from tests.unit.replication.attack import Home, made_home


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return made_home(tmp_path_factory.mktemp("home"))
