"""Messages of one life among those of a command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.records import (
    DEAD_LETTER_REASONS,
    Body,
    DeadLettered,
    RecordColumns,
    Redriven,
    Removed,
    Replicated,
    Transferred,
    Valued,
)
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import Stage


def split_by_life(state: JournalState, body: Body, envelope: RecordColumns) -> Iterator[tuple[Body, RecordColumns]]:
    """Yield a record, or one for each life of its messages, where its queue is replicated.

    Records of a replicated queue's owner have one life each, and one term where messages are dead (DESIGN 17.4).
    """
    # A letter has the life in which its message died.
    queue = body.source if isinstance(body, DeadLettered) else envelope.get("queue")
    ledger = state.queues.get(queue or "") if isinstance(body, Valued) and not isinstance(body, Replicated) else None
    if ledger is None or not ledger.is_replicated:
        yield body, envelope
        return
    is_death = isinstance(body, Removed) and envelope.get("reason") in DEAD_LETTER_REASONS
    if ledger.ownership.all_in_first_life and not is_death and isinstance(body, Removed | Transferred):
        # Each acknowledgement comes here, and in most queues nothing was ever redriven.
        yield body, envelope
        return
    instance = ledger.ownership.instance
    for life, rows in ledger.ownership.by_life(to_bitmap(envelope["ranges"])):
        for term, owner, part in ledger.ownership.by_owner(rows) if is_death else [(0, instance, rows)]:
            # Under a lease that is still open it may die here after another has claimed it.
            told: dict[str, Any] = {"life": life, "term": term, "owner": "" if owner == instance else owner}
            if isinstance(body, Redriven):
                told |= {"life": life + 1} if part.issubset(ledger.rows[State.DEAD]) else {"stage": int(Stage.GONE)}
            elif isinstance(body, Transferred):
                told = {"life": life}
            yield structs.replace(body, **told), {**envelope, "ranges": to_ranges(part)}
