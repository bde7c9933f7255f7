"""The moves of rows from file to file, which compaction and retention record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Foreign, MergedFile, Moved, MovedRows, Ranges, Record, Retired


def moved_record(message_type: str, *, version: int, token: str, files: Iterable[MergedFile]) -> Record:
    """Make the record of a commit that merged files."""
    return Record(body=Moved(version=version, token=token, files=tuple(files)), message_type=message_type)


def foreign_record(message_type: str, *, version: int, paths: Sequence[str], row_count: int) -> Record:
    """Make the record, one for ever, of what a stranger appended; its rows have no bookmarks (DESIGN 15.9)."""
    return Record(body=Foreign(version=version, paths=tuple(paths), rows=row_count), message_type=message_type)


def retired_record(message_type: str, ranges: Ranges) -> Record:
    """Make the record that lets messages go."""
    return Record(body=Retired(), message_type=message_type, ranges=ranges)


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
