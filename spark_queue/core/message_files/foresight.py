"""A log's knowledge of its own future, while it is folded (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.message_files.relocation import Places
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import BarriersDecided, DefinitionsApplied, Granted, Kind, MergedFile, Moved, Record, Resumed


def _names_barriers(record: Record) -> bool:
    return isinstance(record.body, Granted | Resumed | BarriersDecided) and record.body.barrier


def _left_behind(file: MergedFile) -> Iterable[tuple[int, int]]:
    """Return the bookmarks that the copy of a file does not have."""
    if file.kept is None:
        return ()
    (part,) = file.parts
    return to_ranges(to_bitmap([(part.bookmark, part.bookmark + part.row_count)]) - to_bitmap(file.kept))


class Foresight:
    """The later part of a log that is about to be folded: today's places of rows, and the queues of messages.

    Traits are read where the rows stand at its end. They hold for a queue only where no record says otherwise.
    """

    def __init__(self, records: Iterable[Record] = (), *, of: BitMap64 | None = None) -> None:
        self._places: dict[str, Places] = {}
        self._retired: dict[str, BitMap64] = {}
        #: Messages and barriers by queue, for each time that it begins anew; the first are those of the queue that stands.
        self._told: dict[str, list[tuple[BitMap64, BitMap64]]] = {}
        #: The newest record by which a queue that was set aside was taken back in, by queue.
        self._revived: dict[str, int] = {}
        for record in records:
            if record.kind == Kind.MOVED:
                places = self._places.setdefault(str(record.message_type), Places())
                for file in record.body_as(Moved).files:
                    places.put(file)
                    self._let_go(str(record.message_type), *_left_behind(file))
            elif record.kind == Kind.RETIRED:
                self._let_go(str(record.message_type), *record.ranges)
            elif record.kind == Kind.DEFINITIONS_APPLIED:
                for queue in record.body_as(DefinitionsApplied).resets:
                    self._of_queue(queue).append((BitMap64(), BitMap64()))
            elif record.kind == Kind.REVIVED:
                self._revived[str(record.queue)] = record.record
            elif record.body.shows_membership:
                rows = to_bitmap(record.ranges)
                messages, barriers = self._of_queue(str(record.queue))[-1]
                into = barriers if record.kind == Kind.BARRIER_RELEASED or _names_barriers(record) else messages
                into |= rows if of is None else rows & of

    def _let_go(self, message_type: str, *ranges: tuple[int, int]) -> None:
        self._retired.setdefault(message_type, BitMap64()).update(to_bitmap(ranges))

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
        # Of a copy some are let go; of a segment that is retired, all.
        gone = self.retired(segment.message_type).range_cardinality(segment.first, segment.until)
        return replace(found, retired=True) if gone == segment.row_count else found

    def retired(self, message_type: str) -> BitMap64:
        """Return the bookmarks of a type that are let go when the log is folded: retired, or in no copy of their file."""
        return self._retired.get(message_type, BitMap64())
