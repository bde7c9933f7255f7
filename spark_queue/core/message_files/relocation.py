"""The moves of rows from file to file, which compaction and retention record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Foreign, MergedFile, Moved, MovedRows, Ranges, Record, Retired


def moved_record(message_type: str, *, version: int, token: str, files: Iterable[MergedFile]) -> Record:
    """Make the record of files that were merged by a commit, or copied."""
    return Record(body=Moved(version=version, token=token, files=tuple(files)), message_type=message_type)


def foreign_record(message_type: str, *, version: int, paths: Sequence[str], row_count: int) -> Record:
    """Make the record, one for ever, of what a stranger appended; its rows have no bookmarks (DESIGN 15.9)."""
    return Record(body=Foreign(version=version, paths=tuple(paths), rows=row_count), message_type=message_type)


def retired_record(message_type: str, ranges: Ranges, *, reason: str | None = None) -> Record:
    """Make the record that lets messages go; for no `reason` since no queue needs them."""
    return Record(body=Retired(), message_type=message_type, ranges=ranges, reason=reason)


def moved(segment: Segment, file: MergedFile, part: MovedRows, row: int) -> Segment:
    """Return a segment as it stands in a file that was made of others, at row `row` of which a part begins that has it."""
    first_row = row + segment.first - part.bookmark
    if file.kept is None:
        return replace(segment, path=file.path, first_row=first_row, merged=True)
    # A copy is a file of the journal like any other, with as many rows as the one of the table.
    return replace(segment, path=file.path, first_row=first_row, kept=file.kept, table=None, partition={})


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    """A file of a followed table of which a copy stands in the journal, and in no record yet."""

    message_type: str
    file: MergedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFile:
    """A file of a followed table that its store does not have any more, and of which messages are needed."""

    message_type: str
    path: str
    #: The first bookmark of it.
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UncopiedFile:
    """A file of a followed table that could not be copied, and that is tried again later."""

    message_type: str
    #: The first bookmark of it.
    first: int
    #: The text of the refusal.
    trouble: str


#: What upkeep finds of a file of a followed table.
FileFinding: TypeAlias = CopiedFile | MissingFile | UncopiedFile


@dataclass(slots=True)
class Places:
    """Ascending runs of bookmarks and where they stand now."""

    bookmarks: list[int] = field(default_factory=list)
    places: list[tuple[MergedFile, MovedRows, int]] = field(default_factory=list)

    def put(self, file: MergedFile) -> None:
        """Note where the runs of bookmarks in a file stand from now on."""
        for part, row in file.places():
            # Files are merged whole, so a run replaces whole runs.
            low, high = (bisect_left(self.bookmarks, each) for each in (part.bookmark, part.bookmark + part.row_count))
            self.bookmarks[low:high] = [part.bookmark]
            self.places[low:high] = [(file, part, row)]

    def of(self, segment: Segment) -> Segment:
        """Return a segment as it stands now."""
        index = bisect_right(self.bookmarks, segment.first) - 1
        if index < 0:
            return segment
        file, part, row = self.places[index]
        return segment if segment.first >= part.bookmark + part.row_count else moved(segment, file, part, row)
