"""What a subscription tries apart from its batches: one that failed alone, or a piece of a batch that failed (DESIGN 8, 15.12).

Everything here follows from records: who folds the log tries the same next.
"""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import oldest
from spark_queue.core.state.lease import Subscription
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State


def tried_apart(ledger: QueueLedger, subscription: Subscription, rows: BitMap64, *, piece: BitMap64) -> BitMap64:
    """Return what a subscription tries by itself next; empty where it takes the next batch.

    Parameters
    ----------
    rows : BitMap64
        What may be granted to it now, of each key the oldest.
    piece : BitMap64
        What of its failed batch may be granted to it now, all together.
    """
    lone = ledger.lone_failures.at_least(1, rows)
    if not (lone or piece or subscription.suspects or subscription.is_stopped):
        return BitMap64()
    # What it suspects waits as long as there is anything else.
    rows = (rows - BitMap64(subscription.suspects)) or rows
    lone = lone & rows
    others = rows - lone
    if subscription.is_stopped:
        return (others or lone)[-1:]
    if others and _seeks_success(subscription):
        # Messages that fail stand side by side when one publisher made them; the youngest is the likeliest to tell.
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
