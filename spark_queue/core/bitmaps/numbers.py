"""Bookmarks between Roaring bitmaps and numpy arrays, without a step per message."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64


def to_array(rows: BitMap64) -> NDArray[np.int64]:
    """Return the ascending bookmarks of a bitmap."""
    return np.frombuffer(rows.to_array(), dtype=np.uint64).astype(np.int64)


def from_array(bookmarks: NDArray[np.int64]) -> BitMap64:
    """Make a bitmap of bookmarks."""
    return BitMap64(array("Q", bookmarks.astype(np.uint64).tobytes()))
