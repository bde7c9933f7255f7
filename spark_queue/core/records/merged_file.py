"""Files that the coordinator made of others, and the rows that they were made of (PROTOCOL 8)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from spark_queue.core.records.vocabulary import Number, NumberRanges, TablePath, Text


class MovedRows(msgspec.Struct, frozen=True, array_like=True):
    """Adjacent rows of one file, with adjacent bookmarks, that were copied to another one."""

    #: The file they stood in, relative to the message table, or to the followed one, and the row of it at which they began.
    path: TablePath
    first_row: Number
    row_count: Number
    #: That of the first of them.
    bookmark: Number


class MergedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that the coordinator made: its rows are those of the parts, one part after the other (PROTOCOL 8)."""

    path: Text
    parts: tuple[MovedRows, ...] = msgspec.field(name="from")
    #: Of the copy of a file of a followed table: the bookmarks of the messages that it has. Its other rows are let go.
    kept: NumberRanges | None = None

    @property
    def row_count(self) -> int:
        """Number of rows in it."""
        return sum(part.row_count for part in self.parts)

    def places(self) -> Iterator[tuple[MovedRows, int]]:
        """Yield each part with the row of this file at which it begins."""
        row = 0
        for part in self.parts:
            yield part, row
            row += part.row_count
