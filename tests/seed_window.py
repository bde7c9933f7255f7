"""Which random worlds and programs a run tries: `SEED_WINDOW` moves them, and `make test` takes it from the commit."""

from __future__ import annotations

import os

#: The number of the window. A failure comes again with the same number.
WINDOW = int(os.environ.get("SEED_WINDOW", "0"))


def window(count: int) -> range:
    """Return so many seeds: the first ones in window 0, those behind them in window 1."""
    return range(WINDOW * count, (WINDOW + 1) * count)
