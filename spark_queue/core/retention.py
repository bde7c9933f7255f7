"""Which messages are let go: older than the journal keeps them, in whole files that no queue or peer needs (DESIGN 4)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby

from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.message_files.relocation import retired_record
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Ranges, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.needed import due_files, needed_messages, types_set_aside

#: How often it is asked, in milliseconds; a shorter retention is looked at as often as it is long.
ROUND_MS = 60_000


class Retention:
    """Looks now and then for messages over their retention, since nobody waits for that."""

    def __init__(self) -> None:
        self._looked_at_ms = 0

    def due(
        self, state: JournalState, *, pulled_here: Mapping[str, int | None], now_ms: int, at_once: bool = False
    ) -> list[Record]:
        """Return the records that let messages go now.

        Needed are messages in a queue, in any state, and dead letters; and those that an at-most-once reader may still be reading.
        A queue that is set aside might need everything. A peer needs all that it has not pulled (`pulled_here`). It looks
        `at_once` for who waits for it.
        """
        retention_ms = state.definitions.journal.retention_ms
        followed = [each for each in state.definitions.message_types.values() if each.table is not None]
        rounds_ms = [each for each in (retention_ms, *(each.relocate_after_ms for each in followed)) if each is not None]
        if (retention_ms is None and not followed) or (not at_once and now_ms < self._looked_at_ms + min([ROUND_MS, *rounds_ms])):
            return []
        self._looked_at_ms = now_ms
        set_aside = types_set_aside(state)
        kept = {name: known for name, known in state.message_types.items() if name not in set_aside}
        unneeded = {name: _over(state, name, now_ms=now_ms) for name in kept}
        if retention_ms is not None:
            for name, known in kept.items():
                end = bisect_right(known.segments, now_ms - retention_ms, key=lambda segment: segment.entered_at_ms)
                waited_for = _waited_for(state, known.segments, pulled_here, now_ms=now_ms)
                over = to_bitmap([*unneeded[name], *_unneeded(state, name, end=min(end, waited_for))])
                unneeded[name] = tuple(to_ranges(over))
        return [retired_record(name, ranges) for name, ranges in unneeded.items() if ranges]


def _over(state: JournalState, message_type: str, *, now_ms: int) -> Ranges:
    """Return the bookmarks of files that a followed table has removed long ago and that nobody needs (R151)."""
    files = (file.segment for file in due_files(state, message_type, now_ms=now_ms) if not file.needed)
    return tuple(to_ranges(to_bitmap([(segment.first, segment.until) for segment in files])))


def _waited_for(state: JournalState, segments: Sequence[Segment], pulled_here: Mapping[str, int | None], *, now_ms: int) -> int:
    """Return the index of the first segment that some peer may still pull, and that is not too old to wait for it (DESIGN 17.3)."""
    # Of whom nothing is known since this reign began may need everything.
    known = [pulled_here.get(peer, -1) for peer in state.definitions.peers if peer not in state.peer_changes.forgotten]
    slowest = min((record for record in known if record is not None), default=None)
    if slowest is None:
        return len(segments)
    kept_from_ms = now_ms - state.definitions.replication.keep_ms
    too_old = bisect_right(segments, kept_from_ms, key=lambda segment: segment.entered_at_ms)
    return max(too_old, bisect_right(segments, slowest, key=lambda segment: segment.record))


def _unneeded(state: JournalState, message_type: str, *, end: int) -> Ranges:
    """Return the bookmarks of whole files that nobody needs, among those before segment number `end`."""
    known = state.message_types[message_type]
    aged = known.segments[known.retired_segments : end]
    if not aged:
        return ()
    needed = needed_messages(state, message_type)
    # A merged file is as young as its last message.
    still_young = known.segments[end].path if end < len(known.segments) else None
    unneeded: list[tuple[int, int]] = []
    for path, segments in groupby(aged, key=lambda segment: segment.path):
        of_file = list(segments)
        if path != still_young and not needed.range_cardinality(of_file[0].first, of_file[-1].until):
            # Some may have been let go while they were merged with the others.
            unneeded += [(segment.first, segment.until) for segment in of_file if not segment.retired]
    return tuple(to_ranges(to_bitmap(unneeded)))
