"""Removing messages: delete markers, and the facts for a dead-letter queue (R57 to R59, DESIGN 15.11)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import DEAD_LETTER_REASONS, Emit, Kind, Record, Removal
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.lifecycle import State


def remove(
    work: UnitOfWork,
    rows: BitMap64,
    reason: Removal,
    *,
    lease: Lease | None = None,
    error: str | None = None,
    uncounted_cancels: int = 0,
) -> None:
    """Write the delete marker of rows, and the letters of their dead-letter queue.

    No `returned` record counts `uncounted_cancels`, since the message does not go back.
    """
    if not rows:
        return
    if reason not in DEAD_LETTER_REASONS:
        work.emit(records.Removed(), rows, of=lease, reason=reason)
        return
    for deliveries, delivered in list(work.ledger.delivered.split(rows)):
        for cancels, part in list(work.ledger.cancelled.split(delivered)):
            cancels_in_all = cancels + uncounted_cancels
            removed = records.Removed(deliveries=deliveries, cancels=cancels_in_all, error=error)
            work.emit(removed, part, of=lease, reason=reason)
            home = work.ledger.definition.dead_letter_queue
            # A message without a body is nobody's work any more.
            if home is not None and reason != Removal.LOST:
                # Also where that is set aside: it has its letters when it is revived.
                source = work.ledger.definition.name
                letters = records.DeadLettered(source=source, deliveries=deliveries, cancels=cancels_in_all, error=error)
                work.emit(letters, part, queue=home, reason=reason)


def remove_aged(work: UnitOfWork, rows: BitMap64, *, lease: Lease | None = None) -> BitMap64:
    """Remove those of `rows` that are past their age, for they are in nobody's hands now (R51, R52); returns the others."""
    over_age = aged(work, rows)
    remove(work, over_age, Removal.TIME_LIMIT, lease=lease)
    return rows - over_age


def aged(work: UnitOfWork, rows: BitMap64) -> BitMap64:
    """Return those of `rows` that are past their age."""
    aged_until = work.state.aged_until(work.ledger.definition, work.now_ms)
    return work.ledger.over_age(rows, now_ms=work.now_ms, aged_until=aged_until)


def end_letters(state: JournalState, record: Record, emit: Emit) -> None:
    """Record that dead letters are over which their dead-letter queue is done with: their source keeps them no longer (15.11)."""
    if record.kind != Kind.REMOVED or record.reason in DEAD_LETTER_REASONS:
        return
    source = state.queues.get(state.definitions.source_of(str(record.queue)) or "")
    over = BitMap64() if source is None else to_bitmap(record.ranges) & source.rows[State.DEAD]
    if source is not None and over:
        removed = records.Removed(settled_in=str(record.queue))
        emit(removed, queue=source.definition.name, ranges=to_ranges(over), reason=record.reason)


def remove_reached(state: JournalState, record: Record, emit: Emit) -> None:
    """Record that messages which were acknowledged before they were active are gone, as soon as their turn comes (R83)."""
    for ledger in state.filled_by(record):
        if ledger.reached:
            emit(records.Removed(), queue=ledger.definition.name, ranges=to_ranges(ledger.reached), reason=Removal.ACKNOWLEDGED)
