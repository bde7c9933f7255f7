"""Messages whose file has left a followed table: they stand in a copy by now, or they are lost (R152, R155)."""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.message_files.relocation import CopiedFile, MissingFile, moved_record, retired_record
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Record, Removal
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.needed import due_files

#: Where a message waits that nobody has in hand.
_WAITING = (State.AVAILABLE, State.DELAYED, State.HELD, State.INACTIVE)


def take_copy(state: JournalState, copied: CopiedFile) -> Record | None:
    """Return the record of a copy; None where it is of no use: it would not have all that is needed, or nothing is by now.

    It was made of the state of a while ago. A queue that began meanwhile may need more, and the next round copies anew.
    """
    known = state.message_types.get(copied.message_type)
    if known is None or not known.fits(copied.file):
        return None
    needed = _needed(state, known.segment_of(copied.file.parts[0].bookmark))
    if not needed or not needed.issubset(to_bitmap(copied.file.kept or ())):
        return None
    return moved_record(copied.message_type, version=known.version, token=known.token, files=[copied.file])


def lose(work: UnitOfWork, *, segment: Segment) -> None:
    """Let the messages of a file be dead letters that nobody has in hand: their bodies are gone (R155)."""
    ledger, rows = work.ledger, segment.rows
    free = BitMap64.union(*(ledger.rows[state] & rows for state in (*_WAITING, State.DEAD))) - ledger.dead_letters.lost
    error = f"version {segment.version} of its table, file '{segment.path}'"
    remove(work, free, Removal.LOST, error=error)
    for subscription in ledger.subscriptions.values():
        held = (lease.rows for lease in ledger.leases_of(subscription.name) if lease.is_barrier and ledger.is_open(lease))
        pending = (subscription.barriers & rows) - BitMap64.union(BitMap64(), *held)
        if pending:
            received = records.BarrierReceived(error=error)
            work.emit(received, pending, subscription=subscription.name, reason=Removal.LOST)


def missing_segment(state: JournalState, missing: MissingFile) -> Segment | None:
    """Return the messages of a file that is gone; None where the table has it again, or they stand elsewhere by now."""
    if missing.message_type not in state.message_types:
        return None
    segments = (file.segment for file in due_files(state, missing.message_type, among=BitMap64([missing.first])))
    return next((each for each in segments if each.path == missing.path), None)


def queues_of(state: JournalState, message_type: str) -> list[str]:
    """Return the queues of a message type that are not set aside, dead-letter queues included."""
    return [name for name, ledger in state.queues.items() if ledger.definition.message_type == message_type]


def let_go(state: JournalState, segment: Segment) -> Record | None:
    """Return the record that lets the messages of a lost file go; None while somebody has one of them in hand.

    No fold of the log looks for the file from then on.
    """
    if _needed(state, segment):
        return None
    return lost_record(segment)


def lost_record(segment: Segment) -> Record:
    """Make the record that lets the messages of a lost file go."""
    return retired_record(segment.message_type, ((segment.first, segment.until),), reason=Removal.LOST)


def lost_segments(state: JournalState) -> Iterator[Segment]:
    """Yield the messages of lost files that were let go while somebody had one in hand, who has given it back by now."""
    for name, known in state.message_types.items():
        for first in () if known.followed is None else known.followed.lost:
            segment = known.segment_of(first)
            if any(state.queues[queue].rows[each].intersect(segment.rows) for queue in queues_of(state, name) for each in _WAITING):
                yield segment


def _needed(state: JournalState, segment: Segment) -> BitMap64:
    """Return the needed messages of a file that the table has removed; nothing where it has that file still."""
    found = due_files(state, segment.message_type, among=segment.rows)
    return next((file.needed for file in found), BitMap64())
