"""Where the rows of message files went: what compaction and retention record, and what a log knows of its own future.

Bookmarks never change. A message type's segments say where their rows stand; a `moved` record changes that, and a `retired`
record says that no queue needs them any more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
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
    """A file that compaction made, and what it was made of: its rows are those of the parts, one part after the other."""

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
    """Return what a `moved` record tells of."""
    return [MergedFile.from_stored(file) for file in record.detail["files"]]


def moved_record(message_type: str, *, version: int, token: str, files: Iterable[MergedFile]) -> Record:
    """Make the record of a commit that merged files."""
    detail = {"version": version, "token": token, "files": [file.stored() for file in files]}
    return Record(kind=Kind.MOVED, message_type=message_type, detail=detail)


def foreign_record(message_type: str, *, version: int, paths: Sequence[str], row_count: int) -> Record:
    """Make the record, one for ever, of what a stranger appended; its rows have no bookmarks (DESIGN 15.9)."""
    detail = {"version": version, "paths": list(paths), "rows": row_count}
    return Record(kind=Kind.FOREIGN, message_type=message_type, detail=detail)


def retired_record(message_type: str, ranges: Ranges) -> Record:
    """Make the record that lets messages go."""
    return Record(kind=Kind.RETIRED, message_type=message_type, ranges=ranges)


@dataclass(slots=True)
class _Places:
    """Ascending runs of bookmarks and where they stand now."""

    bookmarks: list[int] = field(default_factory=list)
    places: list[tuple[MovedRows, int, str]] = field(default_factory=list)

    def put(self, part: MovedRows, row: int, path: str) -> None:
        # Files are merged whole, so a run replaces whole runs.
        low, high = (bisect_left(self.bookmarks, each) for each in (part.bookmark, part.bookmark + part.row_count))
        self.bookmarks[low:high] = [part.bookmark]
        self.places[low:high] = [(part, row, path)]

    def of(self, segment: Segment) -> Segment:
        index = bisect_right(self.bookmarks, segment.first) - 1
        if index < 0:
            return segment
        part, row, path = self.places[index]
        if segment.first >= part.bookmark + part.row_count:
            return segment
        return replace(segment, path=path, first_row=row + segment.first - part.bookmark, merged=True)


#: Records that show a message to be in their queue, or to have been.
_TELLING = frozenset({Kind.GRANTED, Kind.RESUMED, Kind.RETURNED, Kind.REMOVED, Kind.DEFERRED, Kind.BARRIER_RELEASED}) | {
    Kind.REPLICATED, Kind.TRANSFERRED,
}  # fmt: skip


class Foresight:
    """What a log that is about to be folded says further on: where rows stand today, and which messages are in which queue.

    Traits are read where the rows stand at its end. What they say of a queue holds only where no record says otherwise.

    Parameters
    ----------
    records : Iterable[Record]
        The log.
    of : BitMap64 or None
        The messages that are asked about; None for all.
    """

    def __init__(self, records: Iterable[Record] = (), *, of: BitMap64 | None = None) -> None:
        self._places: dict[str, _Places] = {}
        self._retired: dict[str, BitMap64] = {}
        #: Messages and barriers by queue, for each time that it begins anew; the first are those of the queue that stands.
        self._told: dict[str, list[tuple[BitMap64, BitMap64]]] = {}
        #: The newest record by which somebody took back in what was set aside, by queue.
        self._revived: dict[str, int] = {}
        for record in records:
            if record.kind == Kind.MOVED:
                places = self._places.setdefault(str(record.message_type), _Places())
                for file in merged_files(record):
                    for part, row in file.places():
                        places.put(part, row, file.path)
            elif record.kind == Kind.RETIRED:
                self._retired.setdefault(str(record.message_type), BitMap64()).update(to_bitmap(record.ranges))
            elif record.kind == Kind.DEFINITIONS_APPLIED:
                for queue in record.detail["resets"]:
                    self._of_queue(queue).append((BitMap64(), BitMap64()))
            elif record.kind == Kind.REVIVED:
                self._revived[str(record.queue)] = record.record
            elif record.kind in _TELLING:
                rows = to_bitmap(record.ranges)
                messages, barriers = self._of_queue(str(record.queue))[-1]
                into = barriers if record.kind == Kind.BARRIER_RELEASED or record.detail.get("barrier") else messages
                into |= rows if of is None else rows & of

    def _of_queue(self, queue: str) -> list[tuple[BitMap64, BitMap64]]:
        return self._told.setdefault(queue, [(BitMap64(), BitMap64())])

    def begin(self, queues: Iterable[str]) -> None:
        """Note that the fold has come to where queues begin anew."""
        for queue in queues:
            if len(self._told.get(queue, ())) > 1:
                self._told[queue].pop(0)

    def is_revived(self, queue: str, *, after: int) -> bool:
        """Return whether a queue is taken back in after a record."""
        return self._revived.get(queue, -1) > after

    def told(self, queue: str) -> tuple[BitMap64, BitMap64]:
        """Return the messages that records show to be in a queue, from here to its end, and the barriers."""
        return self._told[queue][0] if queue in self._told else (BitMap64(), BitMap64())

    def place(self, segment: Segment) -> Segment:
        """Return a segment as it will stand when the log is folded."""
        places = self._places.get(segment.message_type)
        found = segment if places is None else places.of(segment)
        return replace(found, retired=True) if segment.first in self.retired(segment.message_type) else found

    def retired(self, message_type: str) -> BitMap64:
        """Return the bookmarks of a type that are retired when the log is folded."""
        return self._retired.get(message_type, BitMap64())
