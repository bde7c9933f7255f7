"""A journal's state as plain values: two states are the same exactly when their digests are equal."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.expirations import Expirations
from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import IN_QUEUE

#: Most values are of these types, and stay as they are.
_PLAIN = frozenset({int, str, bool, float, bytes, type(None)})


def digest(state: JournalState) -> dict[str, Any]:
    """Return everything that a state knows, in values that share nothing with it."""
    return {
        "journal": state.journal_id,
        "epoch": state.epoch,
        "next_record": state.next_record,
        "last_at_ms": state.last_at_ms,
        "pulled": dict(state.pulled),
        "peer_changes": _copied(state.peer_changes),
        "returning": state.returning,
        "instances": dict(state.instances),
        "disagreements": repr(state.disagreements),
        "peer_troubles": dict(state.peer_troubles),
        "definitions": repr(state.definitions),
        "message_types": {
            name: {key: _copied(value) for key, value in vars(message_type).items()}
            for name, message_type in state.message_types.items()
        },
        "queues": {name: of_ledger(ledger) for name, ledger in state.queues.items()},
        "left": {name: of_ledger(ledger) for name, ledger in state.left.items()},
    }


def of_ledger(ledger: QueueLedger) -> dict[str, Any]:
    """Return everything that one queue's ledger knows."""
    return {
        "definition": ledger.definition,
        "start": ledger.start,
        "entered": to_ranges(ledger.entered),
        "rows": {state: to_ranges(rows) for state, rows in ledger.rows.items()},
        "delayed": {due_at_ms: to_ranges(rows) for due_at_ms, rows in ledger.delayed.items()},
        "deferred": {until_ms: to_ranges(rows) for until_ms, rows in ledger.deferred.items()},
        "reached": to_ranges(ledger.reached),
        "expires": _times(ledger, ledger.expires),
        "begun": _times(ledger, ledger.begun),
        "leases": {number: _plain(lease) for number, lease in ledger.leases.items()},
        "subscriptions": {name: _plain(subscription) for name, subscription in ledger.subscriptions.items()},
        "next_lease": ledger.next_lease,
        "attempts": _copied(ledger.attempts),
        "failed_expressions": ledger.failed_expressions,
        "barriers": to_ranges(ledger.barriers),
        "barriers_given_up": ledger.barriers_given_up,
        "outcomes_too_late": ledger.outcomes_too_late,
        "delivered": _counts(ledger.delivered, ledger.entered),
        "cancelled": _counts(ledger.cancelled, ledger.entered),
        "selection": _selection(ledger),
        "lone_failures": _counts(ledger.lone_failures, ledger.entered),
        "marks": _counts(ledger.marks, ledger.entered),
        "stuck": _copied(ledger.stuck),
        "dead_letters": [_plain(letter) for letter in ledger.dead_letters],
        "paused_since_ms": ledger.paused_since_ms,
        "ownership": _copied(ledger.ownership),
        "removed_counts": {reason: count for reason, count in ledger.removed_counts.items() if count},
        "returned_counts": dict(ledger.returned_counts),
    }


def _times(ledger: QueueLedger, times: Expirations) -> dict[int, Any]:
    """Return the times of messages in the queue; the others are forgotten when time passes, not by a record."""
    in_queue = BitMap64.union(*(ledger.rows[state] for state in IN_QUEUE))
    return {at_ms: to_ranges(rows & in_queue) for at_ms, rows in times.items() if rows.intersect(in_queue)}


def _selection(ledger: QueueLedger) -> dict[str, Any]:
    """Return the traits of messages that are in the queue or may come back; the others are forgotten some time or other."""
    selection, standing = ledger.selection, ledger.standing
    return {
        "matches": {text: to_ranges(rows & standing) for text, rows in selection.matches.items()},
        "priorities": [each.tolist() for each in selection.priorities.of(standing)],
        "order_keys": [each.tolist() for each in selection.order_keys.keys_of(standing)],
        "behind": to_ranges(selection.order_keys.behind),
    }


def _counts(counts: Counts, rows: BitMap64) -> dict[int, Any]:
    return {count: to_ranges(part) for count, part in counts.split(rows) if count}


def _plain(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    return {name: _copied(getattr(value, name)) for name in _fields(kind)}


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, BitMap64):
        return to_ranges(value)
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copied(entry) for entry in value]
    if is_dataclass(kind):
        return _plain(value)
    return value


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields: to ask it for each value takes longer than to copy that."""
    return tuple(field.name for field in fields(kind))
