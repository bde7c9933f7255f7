"""The age of messages, which `expiration` is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger


def oldest_ms(state: JournalState, ledger: QueueLedger, parts: Iterable[BitMap64]) -> int | None:
    """Return when the oldest message in any of the parts was published, or came anew; None when they are empty.

    Its cost follows bitmaps, not messages: every poll of a stream asks for it.
    """
    return _oldest_ms(state, ledger, parts, lambda segment: segment.published_at_ms)


def first_aging_ms(state: JournalState, ledger: QueueLedger, parts: Iterable[BitMap64]) -> int | None:
    """Return from when on the first message in any of the parts has been aging for its `expiration`; None when they are empty."""
    return _oldest_ms(state, ledger, parts, lambda segment: segment.entered_at_ms)


def _oldest_ms(
    state: JournalState, ledger: QueueLedger, parts: Iterable[BitMap64], began_ms: Callable[[Segment], int]
) -> int | None:
    parts = tuple(parts)
    anew_ms = ledger.begun.first_of(parts) if ledger.begun else None
    entered = [part - ledger.begun.rows for part in parts] if ledger.begun else parts
    first = min((part.min() for part in entered if part), default=None)
    if first is None:
        return anew_ms
    first_ms = began_ms(state.message_types[ledger.definition.message_type].segment_of(first))
    return first_ms if anew_ms is None else min(first_ms, anew_ms)


def came_ms(state: JournalState, ledger: QueueLedger, row: int) -> int:
    """Return when one message came into the queue, in milliseconds."""
    anew_ms = ledger.begun.of(row)
    return state.message_types[ledger.definition.message_type].segment_of(row).entered_at_ms if anew_ms is None else anew_ms


def came_by(state: JournalState, ledger: QueueLedger, rows: BitMap64, at_ms: int) -> BitMap64:
    """Return those of `rows` that came into the queue at `at_ms` or earlier."""
    return below(rows, state.message_types[ledger.definition.message_type].entered_by(at_ms)) - ledger.begun.since(at_ms)
