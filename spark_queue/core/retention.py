"""Which messages are let go: older than the journal keeps them, in whole files that no queue or peer needs (DESIGN 4).

Also the times of files that a followed table has removed: their messages are let go, or copied, before VACUUM takes them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.message_files.relocation import retired_record
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Ranges, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State

#: How often it is asked, in milliseconds; a shorter retention is looked at as often as it is long.
ROUND_MS = 60_000


class Retention:
    """Looks now and then for messages over their retention, since nobody waits for that."""

    def __init__(self) -> None:
        self._looked_at_ms = 0

    def due(self, state: JournalState, *, pulled_here: Mapping[str, int | None], now_ms: int) -> list[Record]:
        """Return the records that let messages go now.

        Needed are messages in a queue, in any state, and dead letters; and those that an at-most-once reader may still be reading.
        A queue that is set aside might need everything. A peer needs all that it has not pulled (`pulled_here`).
        """
        retention_ms = state.definitions.journal.retention_ms
        followed = [each for each in state.definitions.message_types.values() if each.table is not None]
        rounds_ms = [each for each in (retention_ms, *(each.relocate_after_ms for each in followed)) if each is not None]
        if (retention_ms is None and not followed) or now_ms < self._looked_at_ms + min([ROUND_MS, *rounds_ms]):
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
    files = (file.segment for file in due_files(state, message_type) if file.is_over(now_ms))
    return tuple(to_ranges(to_bitmap([(segment.first, segment.until) for segment in files])))


@dataclass(frozen=True, slots=True, kw_only=True)
class DueFile:
    """A file that a followed table has removed while messages stood in it, or that it may have removed: nobody reads its log on."""

    segment: Segment
    #: Its messages that some queue may still read.
    needed: BitMap64
    #: When its messages are let go or copied, when that is overdue, and when VACUUM may take it, all in milliseconds.
    relocated_at_ms: int
    overdue_at_ms: int
    taken_at_ms: int

    def is_over(self, now_ms: int) -> bool:
        """Return whether its messages are to be let go: its time has come, and no queue needs one (R151)."""
        return self.relocated_at_ms <= now_ms and not self.needed

    def is_to_be_copied(self, now_ms: int) -> bool:
        """Return whether its time has come, and some queue needs it (R152)."""
        return self.relocated_at_ms <= now_ms and bool(self.needed)


def due_files(state: JournalState, message_type: str) -> Iterator[DueFile]:
    """Yield the files of messages that the table which a message type follows has removed, and no copy has yet."""
    known, definition = state.message_types[message_type], state.definitions.message_types.get(message_type)
    removed = [] if known.followed is None or definition is None else list(known.followed.removed_files())
    if known.followed is None or definition is None or not removed:
        return
    kept_ms = known.followed.retention_ms
    after_ms = kept_ms // 3 if definition.relocate_after_ms is None else definition.relocate_after_ms
    # A queue that is set aside might need everything.
    needed = None if message_type in types_set_aside(state) else needed_messages(state, message_type)
    for at_ms, first, _ in removed:
        segment = known.segment_of(first)
        yield DueFile(
            segment=segment,
            needed=segment.present if needed is None else needed & segment.present,
            relocated_at_ms=at_ms + after_ms,
            overdue_at_ms=at_ms + kept_ms * 2 // 3,
            taken_at_ms=at_ms + kept_ms,
        )


def types_set_aside(state: JournalState) -> Collection[str]:
    """Return the message types of queues that are set aside."""
    return {state.definitions.queue(name).message_type for name in state.troubles if name in state.definitions.queues}


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


def needed_messages(state: JournalState, message_type: str) -> BitMap64:
    """Return the messages of a type whose rows some queue may still read."""
    needed = BitMap64()
    for ledger in (*state.queues.values(), *state.left.values()):
        if ledger.definition.message_type == message_type:
            standing = BitMap64.union(BitMap64(), *(rows for each, rows in ledger.rows.items() if each is not State.REMOVED))
            needed |= standing - ledger.dead_letters.lost
            # A released barrier has left the queue, and is still to be read by the subscriptions that have not received it.
            needed = BitMap64.union(needed, *(each.barriers for each in ledger.subscriptions.values()))
            # So have messages that were delivered at most once, or have landed in a sink, while their batch may still be read.
            unproven = (each for each in ledger.leases.values() if not each.proven)
            read = (each.rows for each in unproven if ledger.definition.at_most_once or each.has_landed)
            # A later decision finds the messages that are in the queue; of a queue that was left nobody decides.
            undecided = state.undecided(ledger) if ledger.definition.name in state.queues else BitMap64()
            needed = BitMap64.union(needed, undecided, *read)
    return needed
