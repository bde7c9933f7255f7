"""A segment: one message file's rows and their bookmarks, with the statistics that entering needs (DESIGN 15.17).

Also the moves of rows, which compaction and retention record, and a log's knowledge of its own future.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, to_array, to_bitmap
from spark_queue.core.definitions.definition import QueueDefinition
from spark_queue.core.message_files.origins import ClashingRows, OriginRows, SequenceRange, sequence_ranges
from spark_queue.core.records import Kind, Ranges, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The messages of one `add` action of a message table, wherever their rows stand now."""

    message_type: str
    #: Bookmark of its first row.
    first: int
    #: Bookmark after its last row.
    until: int
    #: Path of the file that holds it now, relative to the message table.
    path: str
    #: Delta version that added it.
    version: int
    #: Token of that commit (DESIGN 15.9).
    token: str
    #: The coordinator's time at which it entered, in milliseconds; `expiration` and retention count from it.
    entered_at_ms: int
    #: When its commit was made, ascending in the log; what is shown of age, and any choice by time, counts from it (DESIGN 15.3).
    published_at_ms: int
    #: Lowest and highest topic in it.
    topic_min: str
    topic_max: str
    #: Rows without an expiration of their own, and the range of the others in milliseconds.
    expires_null_count: int
    expires_min_ms: int | None = None
    expires_max_ms: int | None = None
    #: The time before which none of its messages is delivered, in milliseconds; None for at once (R128).
    due_at_ms: int | None = None
    #: Row of the file at which it begins, and whether compaction put it there, beside others.
    first_row: int = 0
    merged: bool = False
    #: Whether retention let it go: no queue needs it, and its file is no longer in the table.
    retired: bool = False
    #: Which of its messages were found to be barriers of which queue when they entered; decided once (R75). A queue with a
    #: `barrier` that is not in it was set aside then.
    barriers: Mapping[str, Ranges] = field(default_factory=dict)
    #: Whether records of their own say which of its messages are in replicated queues (R129); before, each instance found out.
    is_told: bool = False
    #: Which of its rows were pulled, and from where; and the names of those instances by UUID.
    origins: tuple[OriginRows, ...] = ()
    instances: Mapping[str, str] = field(default_factory=dict)
    #: The groups of those of them that are in one of another name.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: First and last sequence of each named publisher; of a journal that replicates.
    publishers: Mapping[str, SequenceRange] = field(default_factory=dict)
    #: Which of its rows have a number that another message of their publisher has here.
    clashes: tuple[ClashingRows, ...] = ()
    #: Number of the record that let it enter; -1 before that.
    record: int = -1

    @property
    def row_count(self) -> int:
        """Number of messages."""
        return self.until - self.first


def to_record(segment: Segment) -> Record:
    """Make the `entered` record of a segment; its time is stamped when it is committed."""
    detail: dict[str, Any] = {
        "path": segment.path,
        "rows": segment.row_count,
        "version": segment.version,
        "token": segment.token,
        "topics": [segment.topic_min, segment.topic_max],
        "published": segment.published_at_ms,
    }
    if segment.expires_null_count < segment.row_count:
        detail["expires"] = [segment.expires_null_count, segment.expires_min_ms, segment.expires_max_ms]
    if segment.barriers:
        detail["barriers"] = dict(segment.barriers)
    if segment.is_told:
        detail["told"] = True
    if segment.origins:
        detail |= {"origin": [list(each) for each in segment.origins], "instances": dict(segment.instances)}
    if segment.groups:
        detail["groups"] = dict(segment.groups)
    if segment.publishers:
        detail["publishers"] = {name: list(found) for name, found in segment.publishers.items()}
    if segment.clashes:
        detail["clashes"] = [list(each) for each in segment.clashes]
    ranges = ((segment.first, segment.until),)
    return Record(kind=Kind.ENTERED, message_type=segment.message_type, ranges=ranges, due_at_ms=segment.due_at_ms, detail=detail)


def from_record(record: Record) -> Segment:
    """Read the segment that an `entered` record speaks of."""
    detail = record.detail
    ((first, until),) = record.ranges
    expires = detail.get("expires", [until - first, None, None])
    return Segment(
        message_type=str(record.message_type),
        first=first,
        until=until,
        path=detail["path"],
        version=detail["version"],
        token=detail["token"],
        entered_at_ms=record.at_ms,
        published_at_ms=detail.get("published", record.at_ms),
        topic_min=detail["topics"][0],
        topic_max=detail["topics"][1],
        expires_null_count=expires[0],
        expires_min_ms=expires[1],
        expires_max_ms=expires[2],
        due_at_ms=record.due_at_ms,
        barriers={queue: tuple((first, until) for first, until in found) for queue, found in detail.get("barriers", {}).items()},
        is_told=detail.get("told", False),
        origins=tuple((row, rows, origin, bookmark) for row, rows, origin, bookmark in detail.get("origin", ())),
        instances=detail.get("instances", {}),
        groups=detail.get("groups", {}),
        publishers=sequence_ranges(detail.get("publishers", {})),
        clashes=tuple((row, rows, publisher, sequence) for row, rows, publisher, sequence in detail.get("clashes", ())),
        record=record.record,
    )


def stretches(segments: Iterable[Segment], *, of_one_delay: bool = False) -> list[Segment]:
    """Join neighbours that stand one after the other in a merged file; they are as old as the first.

    The whole is retired when all of it is. It is the whole of its file, unless it is to be `of_one_delay`.
    """
    joined: list[list[Segment]] = []
    for segment in segments:
        before = joined[-1][-1] if joined else segment
        is_next = before.path == segment.path and before.first_row + before.row_count == segment.first_row
        if segment.merged and is_next and (not of_one_delay or before.due_at_ms == segment.due_at_ms):
            joined[-1].append(segment)
        else:
            joined.append([segment])
    return [parts[0] if len(parts) == 1 else _joined(parts) for parts in joined]


def _joined(parts: list[Segment]) -> Segment:
    return replace(
        parts[0],
        until=parts[-1].until,
        retired=all(part.retired for part in parts),
        topic_min=min(part.topic_min for part in parts),
        topic_max=max(part.topic_max for part in parts),
        expires_null_count=sum(part.expires_null_count for part in parts),
        expires_min_ms=min((part.expires_min_ms for part in parts if part.expires_min_ms is not None), default=None),
        expires_max_ms=max((part.expires_max_ms for part in parts if part.expires_max_ms is not None), default=None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraitRequest:
    """The traits that one queue needs of entering messages."""

    queue: QueueDefinition
    #: The distinct filters of its subscriptions.
    filters: frozenset[str] = frozenset()
    #: Whether its barriers are asked for; what an `entered` record tells is not found out again (R75).
    barriers: bool = True


def _no_numbers(kind: type) -> Callable[[], NDArray[Any]]:
    return lambda: np.empty(0, dtype=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTraits:
    """The traits of a segment's messages for one queue; computed outside the core, again after every recovery."""

    #: Bookmarks that enter the queue: of its topics, and matching its filter (R65).
    rows: BitMap64
    #: Bookmarks that carry an expiration of their own, by that time in milliseconds (R60).
    expires: Mapping[int, BitMap64] = field(default_factory=dict)
    #: Which of `rows` are barriers (R67).
    barriers: BitMap64 = field(default_factory=BitMap64)
    #: Which of `rows` match each asked filter of a subscription (R49).
    matches: Mapping[str, BitMap64] = field(default_factory=dict)
    #: Which of `rows` have a priority, ascending, and that priority beside it; all others rank lowest (R66).
    ranked: NDArray[np.int64] = field(default_factory=_no_numbers(np.int64))
    priorities: NDArray[np.uint64] = field(default_factory=_no_numbers(np.uint64))
    #: Which of `rows` have an order key, ascending, and the stable hash of that key beside it.
    keyed: NDArray[np.int64] = field(default_factory=_no_numbers(np.int64))
    keys: NDArray[np.uint64] = field(default_factory=_no_numbers(np.uint64))
    #: Bookmarks on which an expression of the queue failed: they match nothing, rank lowest, and are no barrier (DESIGN 8).
    failed: BitMap64 = field(default_factory=BitMap64)

    def with_barriers(self, barriers: Ranges) -> EntryTraits:
        """Return the traits with the barriers that were recorded on entering, whatever their expression would say now (R75)."""
        held = to_bitmap(barriers)
        return replace(self, rows=self.rows | held, barriers=held) if held or self.barriers else self

    def without_keys_of_barriers(self) -> EntryTraits:
        """Return the traits with no order key for barriers: nobody leases one, and many are given it at once."""
        if not self.barriers or not len(self.keyed):
            return self
        kept = np.isin(self.keyed, to_array(self.barriers), invert=True)
        return replace(self, keyed=self.keyed[kept], keys=self.keys[kept])

    def as_told(self, messages: BitMap64, barriers: BitMap64) -> EntryTraits:
        """Return the traits with the barriers that records show, whatever their expression says by now (DESIGN 4)."""
        held = (self.barriers - messages) | (self.rows & barriers)
        return self if held == self.barriers else replace(self, barriers=held)

    def among(self, rows: BitMap64) -> EntryTraits:
        """Return the traits of `rows` alone."""
        ranked, keyed = (np.isin(each, to_array(rows)) for each in (self.ranked, self.keyed))
        return EntryTraits(
            rows=self.rows & rows,
            expires={at_ms: part & rows for at_ms, part in self.expires.items()},
            barriers=self.barriers & rows,
            matches={text: part & rows for text, part in self.matches.items()},
            ranked=self.ranked[ranked],
            priorities=self.priorities[ranked],
            keyed=self.keyed[keyed],
            keys=self.keys[keyed],
            failed=self.failed & rows,
        )

    def since(self, start: int) -> EntryTraits:
        """Return the traits of the bookmarks from `start` on."""
        if min((each.min() for each in (self.rows, self.failed) if each), default=start) >= start:
            return self
        kept = self.among(self.rows - below(self.rows, start))
        return replace(kept, failed=self.failed - below(self.failed, start))


#: Dead letters with the reason and the error of each.
Letters: TypeAlias = "Sequence[tuple[BitMap64, str, str | None]]"


class TraitSource(Protocol):
    """Computes traits of segments for the fold; the real one reads statistics first and columns only where it must."""

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        """Return the traits of `segment` for each of `requests`, by queue name."""
        ...

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: Letters | None = None
    ) -> BitMap64:
        """Return which of `rows` match a filter: a subscription's new one (R49), or one that settles, redrives or purges (R37).

        Parameters
        ----------
        segments : Iterable of Segment
            Where the rows may lie; those that hold none of them are not read.
        expression : str
            A filter that was checked against the message type.
        rows : BitMap64
            The bookmarks in question.
        columns : str
            The message type's columns, in Spark DDL.
        letters : Letters or None
            Given, the filter may also ask for their `reason` and `error`.
        """
        ...


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


def repeated_record(message_type: str, *, version: int, token: str, paths: Sequence[str]) -> Record:
    """Make the record, one for ever, of files that a commit brings and that stood in the log before: their rows enter once."""
    return Record(kind=Kind.REPEATED, message_type=message_type, detail={"version": version, "token": token, "paths": list(paths)})


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
#: Kinds of records that show that their messages are in a queue.
TELLING = frozenset({Kind.GRANTED, Kind.RESUMED, Kind.RETURNED, Kind.REMOVED, Kind.DEFERRED, Kind.BARRIER_RELEASED}) | {
    Kind.BARRIERS_DECIDED, Kind.REPLICATED, Kind.TRANSFERRED,
}  # fmt: skip


class Foresight:
    """The later part of a log that is about to be folded: today's places of rows, and the queues of messages.

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
            elif record.kind in TELLING:
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
