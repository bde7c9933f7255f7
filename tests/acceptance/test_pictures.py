"""The pictures of the documentation show what the product shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.docs.pictures import PICTURES, SHOWN, draw

pytestmark = pytest.mark.browser


def test_pictures_of_the_documentation_are_of_today(browser: Browser, tmp_path: Path) -> None:
    assert draw(browser, tmp_path) == json.loads(SHOWN.read_text(encoding="utf-8")), "write them anew with `make pictures`"
    assert {each.name for each in tmp_path.iterdir()} == {each.name for each in PICTURES.iterdir()} - {SHOWN.name}
