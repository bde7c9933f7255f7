"""The files of a release, which all its tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.release.installed import build
from tests.source_tree import ROOT


@pytest.fixture(scope="session")
def dist() -> Path:
    """Return the directory of an sdist and a wheel of this checkout, which stay there to be published."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    return build(ROOT, ROOT / "dist")
