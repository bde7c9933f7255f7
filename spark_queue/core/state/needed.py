"""Which messages some queue may still read, and the times of files with some that a followed table has removed (DESIGN 20)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.core.message_files.followed_table import FollowedTable
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State


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


def due_files(
    state: JournalState, message_type: str, *, now_ms: int | None = None, among: BitMap64 | None = None
) -> Iterator[DueFile]:
    """Yield the files of messages that the table which a message type follows has removed, and no copy has yet, oldest first.

    With `now_ms` only those whose messages are to be let go or copied by then, with `among` only those with some of these messages.
    """
    known, definition = state.message_types[message_type], state.definitions.message_types.get(message_type)
    if known.followed is None or definition is None:
        return
    kept_ms = known.followed.retention_ms
    after_ms = kept_ms // 3 if definition.relocate_after_ms is None else definition.relocate_after_ms
    times = _removed(known.followed) if among is None else _removed_among(known, known.followed, among)
    found = sorted((first, at_ms) for first, at_ms in times if now_ms is None or at_ms + after_ms <= now_ms)
    # A queue that is set aside might need everything.
    everything = not found or message_type in types_set_aside(state)
    needed = None if everything else needed_messages(state, message_type)
    for first, at_ms in found:
        segment = known.segment_of(first)
        yield DueFile(
            segment=segment,
            needed=segment.present if needed is None else _among(needed, segment),
            relocated_at_ms=at_ms + after_ms,
            overdue_at_ms=at_ms + kept_ms * 2 // 3,
            taken_at_ms=at_ms + kept_ms,
        )


def _removed(followed: FollowedTable) -> Iterator[tuple[int, int]]:
    """Yield the first bookmark of each removed file, and when it was removed, in milliseconds."""
    paths = followed.removed if followed.stopped is None else followed.entered
    times = ((path, followed.removed_at_ms(path)) for path in paths)
    return ((followed.entered[path], at_ms) for path, at_ms in times if at_ms is not None)


def _removed_among(known: MessageTypeState, followed: FollowedTable, rows: BitMap64) -> Iterator[tuple[int, int]]:
    for segment in known.overlapping(rows.min(), rows.max() + 1) if rows else ():
        at_ms = None if segment.table is None or segment.retired else followed.removed_at_ms(segment.path)
        if at_ms is not None and rows.range_cardinality(segment.first, segment.until):
            yield segment.first, at_ms


def _among(needed: BitMap64, segment: Segment) -> BitMap64:
    # Mostly nothing is, and of many files at that.
    return needed & segment.present if needed.range_cardinality(segment.first, segment.until) else BitMap64()


def types_set_aside(state: JournalState) -> Collection[str]:
    """Return the message types of queues that are set aside."""
    return {state.definitions.queue(name).message_type for name in state.troubles if name in state.definitions.queues}
