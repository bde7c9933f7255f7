"""Which messages some queue may still read, and the times of files with some that a followed table has removed (DESIGN 20)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from operator import itemgetter

from pyroaring import BitMap64

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

    def is_over(self, now_ms: int) -> bool:
        """Return whether its messages are to be let go: its time has come, and no queue needs one (R151)."""
        return self.relocated_at_ms <= now_ms and not self.needed

    def is_to_be_copied(self, now_ms: int) -> bool:
        """Return whether its time has come, and some queue needs it (R152)."""
        return self.relocated_at_ms <= now_ms and bool(self.needed)


def due_files(state: JournalState, message_type: str) -> Iterator[DueFile]:
    """Yield the files of messages that the table which a message type follows has removed, and no copy has yet, oldest first."""
    known, definition = state.message_types[message_type], state.definitions.message_types.get(message_type)
    removed = [] if known.followed is None or definition is None else list(known.followed.removed_files())
    if known.followed is None or definition is None or not removed:
        return
    kept_ms = known.followed.retention_ms
    after_ms = kept_ms // 3 if definition.relocate_after_ms is None else definition.relocate_after_ms
    # A queue that is set aside might need everything.
    needed = None if message_type in types_set_aside(state) else needed_messages(state, message_type)
    for at_ms, first, _ in sorted(removed, key=itemgetter(1)):
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
