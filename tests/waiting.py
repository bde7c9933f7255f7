"""Waiting for what other processes and threads do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_until(
    is_so: Callable[[], bool], told: Callable[[], str] = lambda: "it did not happen", *, deadline_s: float = 60.0
) -> None:
    """Look until it is so, or fail with what is told then; a fifth of the time is spent on looking, at most.

    A look may read a whole journal. Without pauses it would take the processor from who is to bring it about.
    """
    until_s = time.monotonic() + deadline_s
    while True:
        began_s = time.monotonic()
        if is_so():
            return
        now_s = time.monotonic()
        assert now_s < until_s, told()
        threading.Event().wait(min(1.0, max(0.01, 4 * (now_s - began_s))))
