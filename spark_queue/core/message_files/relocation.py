"""The moves of rows from file to file, which compaction and retention record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Kind, Ranges, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRows:
    """Adjacent rows of one file, with adjacent bookmarks, that were copied to a merged file."""

    #: The file they stood in, relative to the message table, and the row of it at which they began.
    path: str
    first_row: int
    row_count: int
    #: Of the first of them.
    bookmark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """A file that compaction made, and its parts: its rows are theirs, one part after the other."""

    path: str
    parts: tuple[MovedRows, ...]

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

    def stored(self) -> dict[str, Any]:
        """Return the form of records, of commitInfo and of the file's own metadata (PROTOCOL.md, section 8)."""
        return {"path": self.path, "from": [[part.path, part.first_row, part.row_count, part.bookmark] for part in self.parts]}

    @staticmethod
    def from_stored(stored: Mapping[str, Any]) -> MergedFile:
        """Read the stored form; KeyError, TypeError or ValueError when it is none."""
        parts = (
            MovedRows(path=str(path), first_row=int(first_row), row_count=int(rows), bookmark=int(bookmark))
            for path, first_row, rows, bookmark in stored["from"]
        )
        return MergedFile(path=str(stored["path"]), parts=tuple(parts))


def merged_files(record: Record) -> list[MergedFile]:
    """Return the merged files of a `moved` record."""
    return [MergedFile.from_stored(file) for file in record.detail["files"]]


def moved_record(message_type: str, *, version: int, token: str, files: Iterable[MergedFile]) -> Record:
    """Make the record of a commit that merged files."""
    detail = {"version": version, "token": token, "files": [file.stored() for file in files]}
    return Record(kind=Kind.MOVED, message_type=message_type, detail=detail)


def foreign_record(message_type: str, *, version: int, paths: Sequence[str], row_count: int) -> Record:
    """Make the record, one for ever, of files that a stranger appended; their rows have no bookmarks (DESIGN 15.9)."""
    detail = {"version": version, "paths": list(paths), "rows": row_count}
    return Record(kind=Kind.FOREIGN, message_type=message_type, detail=detail)


def retired_record(message_type: str, ranges: Ranges) -> Record:
    """Make the record that lets messages go."""
    return Record(kind=Kind.RETIRED, message_type=message_type, ranges=ranges)


@dataclass(slots=True)
class Places:
    """Ascending runs of bookmarks and where they stand now."""

    bookmarks: list[int] = field(default_factory=list)
    places: list[tuple[MovedRows, int, str]] = field(default_factory=list)

    def put(self, part: MovedRows, row: int, path: str) -> None:
        """Note where a run of bookmarks stands from now on."""
        # Files are merged whole, so a run replaces whole runs.
        low, high = (bisect_left(self.bookmarks, each) for each in (part.bookmark, part.bookmark + part.row_count))
        self.bookmarks[low:high] = [part.bookmark]
        self.places[low:high] = [(part, row, path)]

    def of(self, segment: Segment) -> Segment:
        """Return a segment as it stands now."""
        index = bisect_right(self.bookmarks, segment.first) - 1
        if index < 0:
            return segment
        part, row, path = self.places[index]
        if segment.first >= part.bookmark + part.row_count:
            return segment
        return replace(segment, path=path, first_row=row + segment.first - part.bookmark, merged=True)
