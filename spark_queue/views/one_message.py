"""The control log as one message sees it: its own records found by Arrow, and folded as if it were alone in its queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core import folds
from spark_queue.core.bitmaps.ranges import holds
from spark_queue.core.definitions.definition import QueueDefinition
from spark_queue.core.message_files.segment import EntryTraits, Letters, Segment, TraitRequest, TraitSource
from spark_queue.core.records import RUN_FAILED, RUN_STOPPED, About, DeadLettered, Kind, Record, kinds_with
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.record_blocks import ControlRows
from spark_queue.views.message_search import Mask, one_of


class MessageRows:
    """The choice of the records of a control log that are about one message."""

    def __init__(self, log: ControlRows, *, message_type: str, bookmark: int) -> None:
        self._log = log
        self._rows = log.columns("kind", "message_type", "queue", "lease", "ranges", "reason")
        self._message_type = self._among("message_type", [message_type])
        self._touching = _touching(self._rows.column("ranges"), bookmark)
        leases: Any = self._rows.column("lease")
        self._lease: NDArray[np.int64] = leases.fill_null(0).to_numpy()

    def queues(self, queue: str) -> list[str]:
        """Return the queue, its dead-letter queue if the message went there, and the queue that it came from."""
        letters = self._log.records(np.flatnonzero(self._touching & self._kinds([Kind.DEAD_LETTERED])))
        pairs = {(each.body_as(DeadLettered).source, str(each.queue)) for each in letters}
        return list(dict.fromkeys([queue, *(name for pair in sorted(pairs) if queue in pair for name in pair)]))

    def chosen(self, queues: Iterable[str]) -> list[Record]:
        """Return the records of the message's life in some queues."""
        mask = self._about(About.JOURNAL) | (self._message_type & self._about(About.TYPE))
        mask |= self._message_type & self._touching & self._about(About.FILES)
        # The version up to which the message log was read, to count on from there.
        read = np.flatnonzero(self._message_type & self._kinds(kinds_with(lambda body: body.reads_on)))
        mask[read[-1:]] = True
        for queue in queues:
            own = self._among("queue", [queue])
            mask |= own & (self._touching | self._about(About.QUEUE) | (self._with_its_leases(own)))
        return self._log.records(np.flatnonzero(mask))

    def _with_its_leases(self, own: Mask) -> Mask:
        leased = own & self._touching & self._kinds([Kind.GRANTED, Kind.RESUMED])
        # A resume may give up messages of its lease; a run that failed, or was stopped, is an outcome of the whole lease.
        told = self._about(About.LEASE) | self._kinds([Kind.RESUMED])
        told |= self._kinds([Kind.OUTCOMES]) & self._among("reason", [RUN_FAILED, RUN_STOPPED])
        return told & np.isin(self._lease, np.unique(self._lease[leased]))

    def _about(self, about: About) -> Mask:
        return self._kinds(kinds_with(lambda body: body.about is about))

    def _kinds(self, kinds: Iterable[str]) -> Mask:
        return self._among("kind", kinds)

    def _among(self, column: str, values: Iterable[str]) -> Mask:
        return one_of(self._rows.column(column), values)


def _touching(ranges: Any, bookmark: int) -> Mask:
    """Return the mask of rows that have a range with the bookmark."""
    lists = ranges.combine_chunks()
    flat = lists.flatten()
    hits = np.flatnonzero((flat.field("first").to_numpy() <= bookmark) & (flat.field("until").to_numpy() > bookmark))
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    mask = np.zeros(len(lists), dtype=np.bool_)
    mask[np.searchsorted(ends, hits, side="right")] = True
    return mask


class MessageTraits(TraitSource):
    """A trait source that reads one row, and knows no other message.

    Attributes
    ----------
    asked : dict of str to (QueueDefinition, EntryTraits)
        The last traits that each queue was given of it, by the definition of then.
    """

    def __init__(self, source: TraitSource, bookmark: int) -> None:
        self._source = source
        self._bookmark = bookmark
        self.asked: dict[str, tuple[QueueDefinition, EntryTraits]] = {}

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        """Return the traits of the message, where it is in the segment; see `TraitSource`."""
        requests = tuple(requests)
        if not segment.first <= self._bookmark < segment.until:
            return {
                each.queue.name: EntryTraits(rows=BitMap64(), matches={text: BitMap64() for text in each.filters})
                for each in requests
            }
        traits = self._source.traits(self._row(segment), requests)
        self.asked.update({each.queue.name: (each.queue, traits[each.queue.name]) for each in requests})
        return traits

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: Letters | None = None
    ) -> BitMap64:
        """Return whether the message matches a filter; see `TraitSource`."""
        its = [self._row(segment) for segment in segments if segment.first <= self._bookmark < segment.until]
        return self._source.matches(its, expression, rows, columns=columns, letters=letters)

    def _row(self, segment: Segment) -> Segment:
        alike = segment.expires_null_count == 0 and segment.expires_min_ms == segment.expires_max_ms
        never = segment.expires_null_count == segment.row_count
        # Where the file's statistics do not decide, two different ends make its reader look at the column.
        expires = (1, None, None) if never else (0, segment.expires_min_ms, segment.expires_max_ms) if alike else (0, 0, 1)
        return replace(
            segment,
            first=self._bookmark,
            until=self._bookmark + 1,
            first_row=segment.first_row + self._bookmark - segment.first,
            # It is a part of its file, as the parts of a merged one are.
            merged=True,
            expires_null_count=expires[0],
            expires_min_ms=expires[1],
            expires_max_ms=expires[2],
        )


def is_of_others(state: JournalState, record: Record, *, message_type: str) -> bool:
    """Return whether a record is of a queue while it has messages of another type: bookmarks mean others then."""
    ledger = None if record.queue is None else state.queues.get(record.queue)
    return ledger is not None and ledger.definition.message_type != message_type


def fold_alone(state: JournalState, record: Record, *, message_type: str, bookmark: int) -> None:
    """Fold a record as if the message were the only one that it speaks of.

    A queue's records about messages of another type are left out. Its subscriptions and pauses outlive them (DESIGN 15.6).
    """
    if record.queue is not None:
        if is_of_others(state, record, message_type=message_type) and record.body.about is not About.QUEUE:
            return
        record = replace(record, ranges=((bookmark, bookmark + 1),) if holds(record.ranges, bookmark) else ())
    folds.fold(state, record)
