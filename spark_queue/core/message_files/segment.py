"""A segment: one message file's rows and their bookmarks, with the statistics that entering needs (DESIGN 15.17)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, to_array, to_bitmap
from spark_queue.core.definitions.definition import QueueDefinition
from spark_queue.core.message_files.followed_table import FollowedColumns
from spark_queue.core.records import ClashingRows, Entered, OriginRows, Ranges, Record, Repeated, SequenceRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The messages of one `add` action of a message table, wherever their rows stand now."""

    message_type: str
    #: Bookmark of its first row.
    first: int
    #: Bookmark after its last row.
    until: int
    #: Path of the file that holds it now, relative to the message table, or to the followed one.
    path: str
    #: Delta version that added it.
    version: int
    #: Token of that commit (DESIGN 15.9).
    token: str
    #: The coordinator's time at which it entered, in milliseconds; `expiration` and retention count from it.
    entered_at_ms: int
    #: When its commit was made, ascending in the log; shown ages, and any choice by time, count from it (DESIGN 15.3).
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
    #: Which of its rows were pulled, and from where; and the names of those instances by UUID.
    origins: tuple[OriginRows, ...] = ()
    instances: Mapping[str, str] = field(default_factory=dict)
    #: The groups of those of them that are in one of another name.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: First and last sequence of each named publisher; of a journal that replicates.
    publishers: Mapping[str, SequenceRange] = field(default_factory=dict)
    #: Which of its rows have a number that another message of their publisher has here.
    clashes: tuple[ClashingRows, ...] = ()
    #: Where its columns stand in its file, and the values that stand in none, by names of files; None in a file of the journal.
    table: FollowedColumns | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    #: The id of its first row in the followed table, where that tracks rows.
    row_id: int | None = None
    #: Its rows that were deleted before it entered: their bookmarks are of no message (R156).
    absent: Ranges = ()
    #: Its messages that the copy has in which it stands now; None where that has all. The others are let go (R152).
    kept: Ranges | None = None
    #: Number of the record that let it enter; -1 before that.
    record: int = -1

    @property
    def row_count(self) -> int:
        """Number of its rows."""
        return self.until - self.first

    @property
    def is_whole(self) -> bool:
        """Whether each of its bookmarks is of a message, and each of these has its body."""
        return not self.retired and not self.absent and self.kept is None

    @property
    def present(self) -> BitMap64:
        """Its messages that have a body."""
        if self.retired:
            return BitMap64()
        return (self.rows if self.kept is None else to_bitmap(self.kept)) - to_bitmap(self.absent)

    @property
    def let_go(self) -> BitMap64:
        """Its messages that have no body any more."""
        return BitMap64() if self.is_whole else self.rows - to_bitmap(self.absent) - self.present

    @property
    def rows(self) -> BitMap64:
        """All of its bookmarks."""
        return to_bitmap([(self.first, self.until)])


def to_record(segment: Segment) -> Record:
    """Make the `entered` record of a segment; its time is stamped when it is committed."""
    expires = (segment.expires_null_count, segment.expires_min_ms, segment.expires_max_ms)
    body = Entered(
        path=segment.path,
        rows=segment.row_count,
        version=segment.version,
        token=segment.token,
        topics=(segment.topic_min, segment.topic_max),
        published=segment.published_at_ms,
        expires=expires if segment.expires_null_count < segment.row_count else None,
        barriers=dict(segment.barriers),
        origin=segment.origins,
        instances=dict(segment.instances),
        groups=dict(segment.groups),
        publishers=dict(segment.publishers),
        clashes=segment.clashes,
        partition=None if segment.table is None else dict(segment.partition),
        row_id=segment.row_id,
        absent=segment.absent,
    )
    ranges = ((segment.first, segment.until),)
    return Record(body=body, message_type=segment.message_type, ranges=ranges, due_at_ms=segment.due_at_ms)


def from_record(record: Record, table: FollowedColumns | None = None) -> Segment:
    """Read the segment that an `entered` record speaks of; `table` is the one that its message type follows."""
    body = record.body_as(Entered)
    ((first, until),) = record.ranges
    null_count, min_ms, max_ms = body.expires or (until - first, None, None)
    return Segment(
        message_type=str(record.message_type),
        first=first,
        until=until,
        path=body.path,
        version=body.version,
        token=body.token,
        entered_at_ms=record.at_ms,
        published_at_ms=body.published,
        topic_min=body.topics[0],
        topic_max=body.topics[1],
        expires_null_count=null_count,
        expires_min_ms=min_ms,
        expires_max_ms=max_ms,
        due_at_ms=record.due_at_ms,
        barriers=body.barriers,
        origins=body.origin,
        instances=body.instances,
        groups=body.groups,
        publishers=body.publishers,
        clashes=body.clashes,
        table=None if body.partition is None else table,
        partition=body.partition or {},
        row_id=body.row_id,
        absent=body.absent,
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
    #: Whether its barriers are asked for; those of an `entered` record are not found out again (R75).
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
        """Return the traits with the barriers that were recorded on entering, even if their expression says otherwise now (R75)."""
        held = to_bitmap(barriers)
        return replace(self, rows=self.rows | held, barriers=held) if held or self.barriers else self

    def without_keys_of_barriers(self) -> EntryTraits:
        """Return the traits with no order key for barriers: nobody leases one, and many are given it at once."""
        if not self.barriers or not len(self.keyed):
            return self
        kept = np.isin(self.keyed, to_array(self.barriers), invert=True)
        return replace(self, keyed=self.keyed[kept], keys=self.keys[kept])

    def as_told(self, messages: BitMap64, barriers: BitMap64) -> EntryTraits:
        """Return the traits with the barriers that records show, even if their expression says otherwise by now (DESIGN 4)."""
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

    def ahead(self, segments: Iterable[Segment], requests: Iterable[TraitRequest]) -> TraitSource:
        """Return a source that is about to be asked for the traits of many segments, one after the other in this order.

        It answers all that this one answers, and raises nothing before it is asked. Where reading costs little it is this one.
        """
        del segments, requests
        return self

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: Letters | None = None
    ) -> BitMap64:
        """Return which of `rows` match a filter: a subscription's new one (R49), or one that settles, redrives or purges (R37).

        Segments that hold none of `rows` are not read. With `letters` the filter may also ask for their `reason` and `error`.
        """
        ...


def repeated_record(message_type: str, *, version: int, token: str, paths: Sequence[str]) -> Record:
    """Make the record, one for ever, of files that a commit brings and that stood in the log before: their rows enter once."""
    return Record(body=Repeated(version=version, token=token, paths=tuple(paths)), message_type=message_type)
