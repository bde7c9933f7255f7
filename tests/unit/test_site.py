"""The documentation's site is built without a warning, and asks nothing of any network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

#: What a browser loads by itself: scripts, styles, pictures, frames; not what a reader may click.
LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=\"([^\"]+)\"")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site strictly; whoever asked the network then would be refused."""
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it hides warnings from --strict, too.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_site_has_every_page(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {Path("index.html"), *pages} <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = {address for page in site.rglob("*.html") for address in LOADED.findall(page.read_text(encoding="utf-8"))}
    assert loaded
    assert not [address for address in loaded if "//" in address]
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles)


def test_site_has_whatever_its_pages_load(site: Path) -> None:
    loaded = {
        (site if address.startswith("/") else page.parent) / address.partition("#")[0].lstrip("/")
        for page in site.rglob("*.html")
        for address in LOADED.findall(page.read_text(encoding="utf-8"))
    }
    assert (site / "site.css").resolve() in {path.resolve() for path in loaded}
    assert not [path for path in loaded if not path.exists()]


def test_site_has_its_picture_and_its_search(site: Path) -> None:
    assert (site / "architecture.svg").read_bytes() == (ROOT / "docs" / "architecture.svg").read_bytes()
    assert "guide/barriers.html" in (site / "search" / "search_index.json").read_text(encoding="utf-8")


def test_first_page_is_readme_without_links_that_the_site_cannot_follow(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    assert "The message queue in your lake" in first
    assert not re.findall(r'href="[^"]*\.(?:md|ipynb|py)"', first)
