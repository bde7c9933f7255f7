"""Where a browser is: the system's own, and none is fetched."""

from __future__ import annotations

import os
import shutil


def chromium() -> str | None:
    """Return the path of Chromium, or of what SPARKQ_CHROMIUM names; None where there is none."""
    named = os.environ.get("SPARKQ_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
