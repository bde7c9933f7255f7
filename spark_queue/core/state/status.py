"""Figures of a queue (R119), as far as one instance has them; everything that shows them asks here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_queue.core.message_files.followed_table import FollowedTable, TablePlace
from spark_queue.core.records import Removal, Return
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.age import oldest_ms
from spark_queue.core.state.findings import joined, running, standing_alarms
from spark_queue.core.state.in_doubt import attempt_of, in_doubt
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.letters import standing_letters
from spark_queue.core.state.lifecycle import OWNED_HERE, State


def queue_status(
    state: JournalState, queue: str, *, now_ms: int, troubles: Mapping[str, str] | None = None, damage: str | None = None,
    place: TablePlace | None = None,
) -> QueueStatus:  # fmt: skip
    """Return a queue's figures; `place` is that of its message type in the table that it follows.

    Their cost follows open leases and bitmaps, not messages: every poll of a stream asks for them.
    """
    ledger = state.ledger(queue)
    trouble = (troubles or {}).get(ledger.definition.message_type)
    message_type = state.message_types[ledger.definition.message_type]
    due = len(ledger.due(now_ms))
    granted = [lease.granted_at_ms for lease in ledger.leases.values() if ledger.outstanding(lease)]
    longest = min(running(ledger, now_ms), key=lambda lease: lease.begun_at_ms, default=None)
    prepared = [attempt_of(lease).prepared_at_ms for lease in in_doubt(ledger)]
    removed = ledger.removed_counts
    acknowledged = removed[Removal.ACKNOWLEDGED] + removed[Removal.DELIVERED]
    return QueueStatus(
        queue=queue,
        message_type=ledger.definition.message_type,
        semantics=ledger.definition.semantics,
        paused=_is_paused(ledger),
        alarm=joined(standing_alarms(state, ledger, now_ms=now_ms, trouble=trouble, damage=damage)),
        queue_depth=ledger.depth,
        available=len(ledger.rows[State.AVAILABLE]) + due,
        backlog=ledger.backlogs().total(),
        delayed=len(ledger.rows[State.DELAYED]) - due,
        held=len(ledger.rows[State.HELD]),
        barriers_released=len(ledger.barriers & ledger.rows[State.REMOVED]),
        inactive_message_count=len(ledger.rows[State.INACTIVE]),
        deferred_ack_count=len(ledger.deferred_after(now_ms)),
        dead_letters=sum(len(letter.rows) for letter in standing_letters(state, queue)),
        failed_expressions=ledger.failed_expressions,
        entered=len(ledger.entered),
        acknowledged=acknowledged,
        expired=sum(removed.values()) - acknowledged,
        expired_leases=ledger.returned_counts[Return.LEASE_EXPIRED],
        max_backlog=ledger.definition.max_backlog,
        target_queue_depth=ledger.definition.target_queue_depth,
        subscriptions=len(ledger.subscriptions),
        receivers=sum(each.receives for each in ledger.subscriptions.values()),
        outcomes_too_late=ledger.outcomes_too_late,
        seconds_behind=_age_s(oldest_ms(state, ledger, (ledger.rows[kind] for kind in OWNED_HERE)), now_ms),
        age_of_oldest_lease=_age_s(min(granted, default=None), now_ms),
        foreign_files=message_type.foreign_files,
        longest_batch_seconds=None if longest is None else _age_s(longest.begun_at_ms, now_ms),
        longest_batch_subscription=None if longest is None else longest.subscription,
        attempts_in_doubt=len(prepared),
        age_of_oldest_attempt=_age_s(min(prepared, default=None), now_ms),
        **_of_instances(state, ledger, now_ms),
        **_of_table(message_type.followed, place),
    )


def _of_table(known: FollowedTable | None, place: TablePlace | None) -> dict[str, Any]:
    """Return where a message type stands in the table that it follows, and what was passed over there (R141, R146, R147)."""
    if known is None:
        return {}
    found = known.figures(place)
    return {
        "table": found.table,
        "table_version": found.version,
        "table_versions_behind": found.behind,
        "table_changes": found.changes,
        "table_rows_passed": found.rows_passed,
        "table_set_aside": found.trouble is not None,
    }


def _of_instances(state: JournalState, ledger: QueueLedger, now_ms: int) -> dict[str, Any]:
    """Return the owners of the messages of a replicated queue, and the transfers by which they came here (R119)."""
    if not ledger.is_replicated:
        return {"owned": ledger.depth}
    ownership, remote = ledger.ownership, ledger.rows[State.REMOTE]
    asked = (each.since_ms for each in ownership.requests.values() if each.rows.intersect(remote))
    return {
        "owned": ledger.depth,
        "remote": len(remote),
        "age_of_oldest_remote": _age_s(oldest_ms(state, ledger, [remote]), now_ms),
        "age_of_oldest_request": _age_s(min(asked, default=None), now_ms),
        "transferred_in": ownership.came_from.total(),
        "transferred_out": ownership.given_to.total(),
        "proxied_transfer": ownership.claimed,
        "proxied_transfer_allowed": bool(ownership.claims_from),
    }


def urgency(*, alarm: str | None, paused: bool | None, dead_letters: int | None, depth: int | None) -> int:
    """Return the sort key by which queues that need a look come first: alarms, then pauses and letters, then work."""
    if alarm:
        return 0
    if paused or dead_letters:
        return 1
    return 2 if depth else 3


def _is_paused(ledger: QueueLedger) -> bool:
    stopped = [each.is_stopped for each in ledger.subscriptions.values()]
    return ledger.paused or (bool(stopped) and all(stopped))


def _age_s(since_ms: int | None, now_ms: int) -> float | None:
    return None if since_ms is None else max(0, now_ms - since_ms) / 1_000
