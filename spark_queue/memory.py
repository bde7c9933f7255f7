"""Memory that was needed for a moment, in a process that lives long."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Give the system what is free: with glibc, what lies between pieces that stay does not go by itself. Else it does nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
