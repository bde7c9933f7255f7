"""Memory that was needed for a moment, in a process that lives long."""

from __future__ import annotations

import ctypes


def return_free_memory() -> None:
    """Return what is free to the system: with glibc, what lies between pieces that stay does not go by itself."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
