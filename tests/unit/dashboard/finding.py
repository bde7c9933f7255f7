"""Where a browser is: the system's own, and no test fetches one."""

from __future__ import annotations

import os
import shutil

#: Tests that drive it, in tests/acceptance.
IN_A_BROWSER = ("test_dashboard.py", "test_page_layout.py", "test_page_scale.py", "test_pictures.py", "test_tasks.py")


def chromium() -> str | None:
    """Return the path of Chromium, or of what SPARKQ_CHROMIUM names; None where there is none."""
    named = os.environ.get("SPARKQ_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def left_out() -> list[str]:
    """Return the tests that are not collected where there is no browser; BROWSER_TESTS=required lets them fail there instead."""
    return [] if chromium() or os.environ.get("BROWSER_TESTS") == "required" else list(IN_A_BROWSER)


def told() -> str:
    """Say what is missing, and which tests want it."""
    names = ", ".join(f"tests/acceptance/{name}" for name in IN_A_BROWSER)
    return f"No Chromium was found for {names}. Debian: apt-get install chromium; or name one by SPARKQ_CHROMIUM."
