"""The entered messages of one message type, and the places of their rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.message_files.followed_table import FollowedTable
from spark_queue.core.message_files.origins import Membership, OriginNames, Origins, overlap
from spark_queue.core.message_files.relocation import moved
from spark_queue.core.message_files.segment import Segment, from_record
from spark_queue.core.records import (
    Entered,
    Followed,
    Foreign,
    MergedFile,
    Moved,
    MovedRows,
    Named,
    Passed,
    Ranges,
    Record,
    Removal,
    Repeated,
    Retired,
    SequenceRange,
    Stopped,
)
from spark_queue.errors import JournalError

#: How long a file that nothing names any more stays in the store, in milliseconds: readers that planned it before read on.
KEPT_MS = 24 * 3600 * 1000


class MessageTypeState:
    """The entered messages of one message type; only records change it, through `fold`."""

    def __init__(self, *, created_at_ms: int = 0) -> None:
        #: When its journal was made: nothing was published before.
        self.created_at_ms = created_at_ms
        #: Bookmark after the last entered message.
        self.entered_until = 0
        #: Last Delta version that left a record, and the token of that commit; -1 before the first.
        self.version = -1
        self.token = ""
        #: Oldest first; where their rows stand now.
        self.segments: list[Segment] = []
        #: Versions in which strangers appended, with their paths and row counts.
        self.foreign: dict[int, Foreign] = {}
        #: Versions that bring files which had entered before, with the token of each and those paths.
        self.repeated: dict[int, Repeated] = {}
        #: Files that compaction replaced or retention let go within the last `KEPT_MS`, and when, in milliseconds.
        self.replaced: dict[str, int] = {}
        #: Number of leading segments that are all retired.
        self.retired_segments = 0
        #: Number of retired messages.
        self.retired_rows = 0
        #: Where its messages were first published, and the messages of other instances that are here.
        self.origins = Origins()
        #: Their membership of replicated queues, also of those that this instance does not have.
        self.told: dict[str, Membership] = {}
        #: The table that it follows; None where its messages are published.
        self.followed: FollowedTable | None = None
        #: The highest sequence of each named publisher that is known to be here.
        self.publishers: dict[str, int] = {}

    @property
    def kept_from(self) -> int:
        """The first bookmark that is not retired: where a topic begins now."""
        return self.segments[self.retired_segments - 1].until if self.retired_segments else 0

    @property
    def foreign_files(self) -> int:
        """How many files strangers appended."""
        return sum(len(each.paths) for each in self.foreign.values())

    def fold(self, record: Record) -> None:
        """Apply a record about message files; any other kind changes nothing."""
        match record.body:
            case Entered():
                self.add(self.segment_by(record))
            case Followed() as followed:
                self._follow(followed)
            case Passed() as passed:
                self.version, self.token = passed.version, passed.token
                self._of_table(record)
            case Stopped():
                self._of_table(record)
            case Named(names=names):
                self.origins.add_names(names)
            case Foreign(version=version) as foreign:
                self.version, self.token = version, ""
                self.foreign[version] = foreign
            case Repeated() as repeated:
                # It is no place to read on from: whoever takes such an entry away does no harm.
                self.repeated[repeated.version] = repeated
            case Moved(version=version, token=token, files=files):
                self.version, self.token = version, token
                for file in files:
                    self._move(file, record.at_ms)
            case Retired():
                self._retire(record)

    def _follow(self, body: Followed) -> None:
        if self.followed is None:
            self.followed = FollowedTable(body)
        else:
            self.followed.goes_on(body)
        self.version, self.token = self.followed.last

    def _of_table(self, record: Record) -> None:
        assert self.followed is not None, "a record of a table follows the one that says which it is"
        self.followed.fold(record)

    def segment_by(self, record: Record) -> Segment:
        """Return the segment that an `entered` record lets enter next."""
        return from_record(record, None if self.followed is None else self.followed.columns)

    def add(self, segment: Segment) -> None:
        """Add the next segment."""
        if segment.table is not None and self.followed is not None:
            self.followed.enter(segment.path, segment.first, segment.version, segment.token)
        self.segments.append(segment)
        self.entered_until = segment.until
        self.origins.add(segment.first, segment.origins)
        self.origins.groups.update(segment.groups)
        for publisher, (_, last) in segment.publishers.items():
            self.publishers[publisher] = max(last, self.publishers.get(publisher, last))
        self.version, self.token = segment.version, segment.token

    def membership(self, queue: str) -> Membership:
        """Return the membership of its messages in a replicated queue; empty as long as no record has decided it."""
        return self.told.get(queue, Membership())

    def segment_of(self, bookmark: int) -> Segment:
        """Return the segment that holds an entered bookmark."""
        return self.segments[bisect_right(self.segments, bookmark, key=lambda segment: segment.first) - 1]

    def origin_names(self, own: str | None, instances: Mapping[str, str]) -> OriginNames | None:
        """Return where its messages were first published, by name; None in a journal that is no instance."""
        return None if own is None else OriginNames(self.origins, own, instances)

    @property
    def published_until_ms(self) -> int:
        """When the last of them was published, in milliseconds; rows of a followed table may be older than the journal."""
        if self.segments:
            return self.segments[-1].published_at_ms
        return self.created_at_ms if self.followed is None else 0

    def published_by(self, at_ms: int) -> int:
        """Return the bookmark before which every message was published at `at_ms` or earlier."""
        index = bisect_right(self.segments, at_ms, key=lambda segment: segment.published_at_ms)
        return self.segments[index - 1].until if index else 0

    def entered_by(self, at_ms: int) -> int:
        """Return the bookmark before which every message had entered at `at_ms` or earlier."""
        index = bisect_right(self.segments, at_ms, key=lambda segment: segment.entered_at_ms)
        return self.segments[index - 1].until if index else 0

    def held(self, own: str) -> dict[str, BitMap64]:
        """Return all that ever entered, by the UUID of its origin, as bookmarks there; `own` is the journal's first."""
        found = {origin: rows.copy() for origin, rows in self.origins.held.items()}
        for origin, first, until in self.origins.own_parts(0, self.entered_until, own=own):
            found[origin] = found.get(origin, BitMap64()) | to_bitmap([(first, until)])
        return found

    def entered_before(self, record: int) -> int:
        """Return the bookmark before which every message had entered before that record."""
        index = bisect_left(self.segments, record, key=lambda segment: segment.record)
        return self.segments[index].first if index < len(self.segments) else self.entered_until

    def overlapping(self, first: int, until: int) -> list[Segment]:
        """Return the segments that hold some of the bookmarks from `first` to before `until`."""
        low = bisect_right(self.segments, first, key=lambda segment: segment.until)
        return self.segments[low : max(low, self._index(until))]

    def may_repeat(self, publishers: Mapping[str, SequenceRange], *, since: int) -> bool:
        """Return whether a file that has entered with the bookmark `since` or later may hold numbers of these publishers."""
        return any(overlap(publishers, segment.publishers) for segment in self.segments[self._index(since) :])

    def ranges_in(self, paths: Collection[str]) -> Ranges:
        """Return the bookmarks of the rows in some files."""
        return tuple((segment.first, segment.until) for segment in self.segments if segment.path in paths)

    def retired_error(self, first: int, *, end: int, next_step: str) -> JournalError:
        """Make MESSAGES_RETIRED for message `first`, which is let go, and those after it before `end`."""
        found = self.segment_of(first)
        kept = first
        for segment in self.segments[self._index(found.first) :]:
            # The first message behind them that has its body.
            standing = segment.present
            standing.remove_range(0, kept)
            kept = standing.min() if standing else segment.until
            if standing:
                break
        facts = {"first": first, "last": min(end, kept) - 1, "kept": kept}
        return JournalError("MESSAGES_RETIRED", message_type=found.message_type, next_step=next_step, **facts)

    def fits(self, file: MergedFile) -> bool:
        """Return whether a file was made of the segments that stand here now: bookmarks keep their meaning."""
        if file.kept is not None and not self._fits_copy(file):
            return False
        return bool(file.parts) and all(self._fits(part) for part in file.parts)

    def _fits_copy(self, file: MergedFile) -> bool:
        """Return whether the file that was copied stands in the followed table still, as a whole, with what was kept of it."""
        if len(file.parts) != 1:
            return False
        found = self.segment_of(file.parts[0].bookmark)
        kept = to_bitmap(file.kept or ())
        return found.table is not None and not found.retired and bool(kept) and kept.issubset(found.rows)

    def _fits(self, part: MovedRows) -> bool:
        found = self.segments[self._index(part.bookmark) : self._index(part.bookmark + part.row_count)]
        covered = bool(found) and (found[0].first, found[-1].until) == (part.bookmark, part.bookmark + part.row_count)
        return covered and all(
            (segment.path, segment.first_row) == (part.path, part.first_row + segment.first - part.bookmark) for segment in found
        )

    def _index(self, bookmark: int) -> int:
        return bisect_left(self.segments, bookmark, key=lambda segment: segment.first)

    def _move(self, file: MergedFile, at_ms: int) -> None:
        for part, row in file.places():
            low, high = self._index(part.bookmark), self._index(part.bookmark + part.row_count)
            self._note_left(self.segments[low:high], at_ms)
            self.segments[low:high] = [moved(segment, file, part, row) for segment in self.segments[low:high]]

    def _retire(self, record: Record) -> None:
        for first, until in record.ranges:
            low, high = self._index(first), self._index(until)
            self._note_left(self.segments[low:high], record.at_ms)
            self.retired_rows += sum(segment.row_count for segment in self.segments[low:high])
            self.segments[low:high] = [replace(segment, retired=True) for segment in self.segments[low:high]]
            if record.reason == Removal.LOST and self.followed is not None:
                self.followed.lost.append(first)
        while self.retired_segments < len(self.segments) and self.segments[self.retired_segments].retired:
            self.retired_segments += 1

    def _note_left(self, segments: Iterable[Segment], at_ms: int) -> None:
        """Note that messages stand in their files no more; a followed table's files are its own."""
        for segment in segments:
            if segment.table is None:
                self._note_replaced(segment.path, at_ms)
            elif self.followed is not None:
                self.followed.leave(segment.path)

    def _note_replaced(self, path: str, at_ms: int) -> None:
        self.replaced[path] = at_ms
        while (oldest := next(iter(self.replaced))) and self.replaced[oldest] < at_ms - KEPT_MS:
            del self.replaced[oldest]
