"""Messages of one life among those of a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.records import DEAD_LETTER_REASONS, Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import Stage

#: Records of a replicated queue's owner: each has one life, and one term where messages are dead (DESIGN 17.4).
_OF_ONE_LIFE = frozenset({Kind.REMOVED, Kind.DEAD_LETTERED, Kind.REDRIVEN, Kind.TRANSFERRED})


def of_one_life(state: JournalState, kind: str, fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of a record, or those of one record for each life of its messages, where the queue is replicated."""
    # A letter has the life in which its message died.
    queue = fields["detail"]["source"] if kind == Kind.DEAD_LETTERED else fields.get("queue", "")
    ledger = state.queues.get(queue) if kind in _OF_ONE_LIFE else None
    if ledger is None or ledger.ownership is None:
        yield fields
        return
    detail = fields.get("detail", {})
    is_death = kind == Kind.REMOVED and fields.get("reason") in DEAD_LETTER_REASONS
    if ledger.ownership.all_in_first_life and not is_death and kind in {Kind.REMOVED, Kind.TRANSFERRED}:
        # Each acknowledgement comes here, and in most queues nothing was ever redriven.
        yield fields
        return
    instance = ledger.ownership.instance
    for life, rows in ledger.ownership.by_life(to_bitmap(fields["ranges"])):
        for term, owner, part in ledger.ownership.by_owner(rows) if is_death else [(0, instance, rows)]:
            # Under a lease that is still open it may die here after another has claimed it.
            found: dict[str, Any] = {"life": life, "term": term, "owner": "" if owner == instance else owner}
            if kind == Kind.REDRIVEN:
                found |= {"life": life + 1} if part.issubset(ledger.rows[State.DEAD]) else {"stage": int(Stage.GONE)}
            told = {name: value for name, value in found.items() if value}
            yield {**fields, "ranges": to_ranges(part), "detail": told | detail}
