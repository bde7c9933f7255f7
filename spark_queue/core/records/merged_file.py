"""Files that compaction made, and the rows that they were made of (PROTOCOL 8)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from spark_queue.core.records.vocabulary import Number, Text


class MovedRows(msgspec.Struct, frozen=True, array_like=True):
    """Adjacent rows of one file, with adjacent bookmarks, that were copied to a merged file."""

    #: The file they stood in, relative to the message table, and the row of it at which they began.
    path: Text
    first_row: Number
    row_count: Number
    #: That of the first of them.
    bookmark: Number


class MergedFile(msgspec.Struct, frozen=True):
    """A file that compaction made: its rows are those of the parts, one part after the other (PROTOCOL 8)."""

    path: Text
    parts: tuple[MovedRows, ...] = msgspec.field(name="from")

    @property
    def row_count(self) -> int:
        """Number of messages in it."""
        return sum(part.row_count for part in self.parts)

    def places(self) -> Iterator[tuple[MovedRows, int]]:
        """Yield each part with the row of this file at which it begins."""
        row = 0
        for part in self.parts:
            yield part, row
            row += part.row_count
