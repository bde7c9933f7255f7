"""Messages as rows for people: their states, counts and bodies."""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """One message."""

    bookmark: int
    state: str
    subscription: str | None
    lease: int | None
    due_ms: int | None
    deliveries: int
    cancels: int
    is_barrier: bool
    #: The instance that may deliver it, of a replicated queue.
    owner: str | None = None


def message_rows(ledger: QueueLedger, bookmarks: BitMap64, now_ms: int) -> list[MessageRow]:
    """Return the rows of some messages of a queue."""
    due, known = ledger.due(now_ms), bookmarks - ledger.barriers - ledger.rows[State.REMOVED]
    parts = ledger.ownership.by_owner(known) if ledger.is_replicated else []
    owners = {row: owner for _, owner, rows in parts for row in rows}
    return [_row(ledger, bookmark, due, owners.get(bookmark)) for bookmark in bookmarks]


def _row(ledger: QueueLedger, bookmark: int, due: BitMap64, owner: str | None) -> MessageRow:
    state = next((state for state, rows in ledger.rows.items() if bookmark in rows), None)
    lease = next((lease for lease in ledger.leases.values() if bookmark in lease.leased), None)
    due_ms = next((at_ms for at_ms, rows in ledger.delayed.items() if bookmark in rows), None)
    if state == State.DELAYED and bookmark in due:
        state, due_ms = State.AVAILABLE, None
    return MessageRow(
        bookmark=bookmark,
        state="not in it" if state is None else str(state),
        subscription=None if lease is None else lease.subscription,
        lease=None if lease is None else lease.number,
        due_ms=lease.due_at_ms if lease is not None else due_ms,
        deliveries=ledger.delivered.of(bookmark),
        cancels=ledger.cancelled.of(bookmark),
        is_barrier=bookmark in ledger.barriers,
        owner=owner,
    )
