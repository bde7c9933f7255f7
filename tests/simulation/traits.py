"""What a world's queues know of messages that never were in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource


def is_barrier(bookmark: int) -> bool:
    """Return which messages are barriers where the queue has any: every seventh, and now and then two back to back."""
    return bookmark % 7 == 5 or bookmark % 21 == 6


def key_of(bookmark: int) -> int:
    """Return the key of a message where the queue orders by one."""
    return bookmark % 3


class WholeSegments(TraitSource):
    """Every message enters every queue of its type."""

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        """Return all rows of the segment to each queue."""
        rows = to_bitmap([(segment.first, segment.until)])
        barriers = BitMap64([row for row in rows if is_barrier(row)])
        keyed = np.arange(segment.first, segment.until)
        keys = np.array([key_of(row) for row in rows], dtype=np.uint64)
        return {
            each.queue.name: EntryTraits(
                rows=rows,
                barriers=barriers if each.queue.barrier else BitMap64(),
                keyed=keyed if each.queue.order_key else keyed[:0],
                keys=keys if each.queue.order_key else keys[:0],
            )
            for each in requests
        }

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: object = None
    ) -> BitMap64:
        """Let everything match."""
        return BitMap64(rows)
