"""Isolation: a failing batch is divided down to one message, and then the fault is the message's or the sink's (DESIGN 8, 15.12).

A message that fails alone is from then on tried only alone. The first time it is a *suspect*, too: where something else of its
subscription succeeds, the suspect's failures count, and at its limits it becomes a dead letter. Where three different ones fail
with no success between, the sink is to blame: the subscription pauses with an alarm, nothing was counted, and one lone message
at a time is tried until one succeeds.

Messages on which an expression fails: they are counted where somebody looks, since nothing else shows them (DESIGN 8).
"""

from __future__ import annotations

from itertools import islice

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import oldest
from spark_queue.core.deciding.free_rows import grantable, without_lone
from spark_queue.core.deciding.removal import remove, remove_aged
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Emit, PauseReason, Record, Removal, Return, UnpauseReason
from spark_queue.core.state.alarm import LONE_BACKOFF, SUSPECTS_LIMIT
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.subscription import Subscription


def isolate(work: UnitOfWork, lease: Lease, rows: BitMap64) -> None:
    """Return part of a failing batch without counting a delivery; pieces of it are tried next."""
    rows = remove_aged(work, rows, lease=lease)
    if not rows:
        return
    subscription, limit = work.ledger.subscriptions[lease.subscription], None
    if not lease.searches:
        # The first batch that fails says nothing about the next; when that one fails, too, batches are too large.
        known = subscription.isolation_limit
        limit = lease.limit if known is None else max(2, min(known, len(lease.rows)) // 2)
    work.emit(records.Returned(limit=limit), rows, of=lease, reason=Return.ISOLATED)


def is_suspect(work: UnitOfWork, lease: Lease, rows: BitMap64, *, error: str | None) -> bool:
    """Return whether a lone message that did not succeed under a lease may have failed by the sink's fault.

    Where too few others wait to find out, it is held against the message, as ever.
    """
    subscription = work.ledger.subscriptions[lease.subscription]
    if subscription.is_stopped:
        return True
    suspects = BitMap64(row for row, known in subscription.suspects.items() if not known.lone_failures)
    others = without_lone(work.ledger, grantable(work, subscription)) | suspects
    return error is not None and len(others - rows) >= SUSPECTS_LIMIT


def suspect(work: UnitOfWork, lease: Lease, rows: BitMap64, reason: Return, *, due_at_ms: int, error: str | None) -> None:
    """Return a lone message that failed, for another to be tried; the third in a row raises the alarm."""
    subscription = work.ledger.subscriptions[lease.subscription]
    returned = records.Returned(alone=True, error=error)
    work.emit(returned, rows, of=lease, reason=reason, due_at_ms=due_at_ms)
    if subscription.fresh_suspects >= SUSPECTS_LIMIT and not subscription.is_stopped:
        alarm = (
            f"subscription '{subscription.name}': {len(subscription.suspects)} messages failed in a row, each alone. The last "
            f"error: {error}"
        )
        suspects = BitMap64(subscription.suspects)
        work.emit(records.Paused(error=alarm), suspects, subscription=subscription.name, reason=PauseReason.ALARM)


def lone_due_ms(work: UnitOfWork, rows: BitMap64) -> int:
    """Return when a message that fails alone now may be tried again: later each time."""
    backoff = work.ledger.definition.retry_backoff or LONE_BACKOFF
    return work.now_ms + backoff.delay_ms(work.ledger.lone_failures.of(rows.min()))


def confirm(work: UnitOfWork, subscription: Subscription) -> None:
    """Draw the conclusions from a success: an alarm ends, and suspects past their limits become dead letters."""
    ledger, queue = work.ledger, work.ledger.definition
    if subscription.is_stopped:
        work.emit(records.Unpaused(), subscription=subscription.name, reason=UnpauseReason.PROBE)
    for row, known in list(subscription.suspects.items()):
        rows = BitMap64([row]) & (ledger.rows[State.AVAILABLE] | ledger.rows[State.DELAYED])
        if queue.max_deliveries and ledger.delivered.at_least(queue.max_deliveries, rows):
            remove(work, rows, Removal.MAX_DELIVERIES, error=known.error)
        elif queue.max_cancels and ledger.cancelled.at_least(queue.max_cancels + 1, rows):
            remove(work, rows, Removal.MAX_CANCELS, error=known.error)


#: Bookmarks that a record names, for people to look at.
_EXAMPLES = 5


def count_failed_expressions(state: JournalState, record: Record, emit: Emit) -> None:
    """Record how many messages of those that just came failed; their file may be retired before somebody folds the log."""
    for name in list(state.queues_changed_by(record)):
        ledger = state.queues.get(name)
        if ledger is not None and ledger.failing:
            examples = tuple(islice(ledger.failing, _EXAMPLES))
            emit(records.ExpressionFailed(messages=len(ledger.failing), examples=examples), queue=name)


def suspect_to_try(ledger: QueueLedger, subscription: Subscription, rows: BitMap64, *, piece: BitMap64) -> BitMap64:
    """Return the messages to try apart next: a single one, or a piece of the failed batch; none if the next lease is ordinary.

    `rows` may be granted to the subscription now, of each key the oldest; `piece` is that part of its failed batch.
    """
    lone = ledger.lone_failures.at_least(1, rows)
    if not (lone or piece or subscription.suspects or subscription.is_stopped):
        return BitMap64()
    # Suspects wait as long as there is anything else.
    rows = (rows - BitMap64(subscription.suspects)) or rows
    lone = lone & rows
    others = rows - lone
    if subscription.is_stopped:
        return (others or lone)[-1:]
    if others and _seeks_success(subscription):
        # Messages that fail stand side by side when one publisher made them; the youngest is the likeliest to differ.
        return others[-1:]
    if lone and not (others and subscription.tried_lone):
        return _waits_longest(ledger, lone)
    return oldest(piece, max(1, len(piece) // 2))


def _seeks_success(subscription: Subscription) -> bool:
    """Return whether it is found out now whether messages or the sink are to blame."""
    suspects = subscription.fresh_suspects
    return suspects > 1 or (suspects == 1 and bool(subscription.failed))


def _waits_longest(ledger: QueueLedger, rows: BitMap64) -> BitMap64:
    """Return the one of some messages without a lease that has been due for the longest time; the oldest of several.

    One that has no such time is another instance's, and is to be claimed.
    """
    due = rows & ledger.rows[State.AVAILABLE]
    if not due:
        since_ms = min((due_at_ms for due_at_ms, part in ledger.delayed.items() if part.intersect(rows)), default=None)
        due = rows if since_ms is None else rows & ledger.delayed[since_ms]
    return due[:1]
