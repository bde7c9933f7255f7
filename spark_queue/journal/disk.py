"""Forcing files to a local disk, so that they outlive a power loss (DESIGN 4)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def force(path: str) -> None:
    """Force a file's bytes, or the names in a directory, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def force_tree(folder: str) -> None:
    """Force all files below a directory, their names and its own to the disk; what is deleted meanwhile need not get there."""
    for parent, _, names in os.walk(folder):
        for path in (*(Path(parent, name) for name in names), parent):
            with suppress(FileNotFoundError):
                force(str(path))
    force(str(Path(folder).parent))
