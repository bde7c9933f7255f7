"""What a batch read of a topic gives within its bounds, with Spark and without: of 12 messages every third is of another topic."""

from __future__ import annotations

import pytest

over_ranges = pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingBookmark": "4"}, [4, 5, 7, 8, 9, 10, 11]),
        ({"startingBookmark": "5", "endingBookmark": "10"}, [5, 7, 8, 9]),
        ({"startingBookmark": "8", "endingBookmark": "9"}, [8]),
        ({"startingBookmark": "8", "endingBookmark": "8"}, []),
        ({"startingBookmark": "8", "endingTimestamp": "2000-01-01T00:00:00Z"}, []),
        ({"startingBookmark": "8", "endingBookmark": "earliest"}, []),
        ({"startingBookmark": "latest"}, []),
        ({"endingBookmark": "earliest"}, []),
        ({"startingBookmark": "1000"}, []),
        ({"startingTimestamp": "2000-01-01T00:00:00Z"}, [1, 2, 4, 5, 7, 8, 9, 10, 11]),
        ({"startingTimestamp": "2999-01-01T00:00:00Z"}, []),
        ({"endingTimestamp": "2000-01-01T00:00:00Z"}, []),
    ],
)
