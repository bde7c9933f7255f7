"""The lease of a batch that runs again: the messages that are given once more, and the parts of a failed one (P2, P3, P6)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import oldest
from spark_queue.core.deciding.barrier import give_up, is_spent
from spark_queue.core.deciding.isolation import isolate
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.session import Session
from spark_queue.core.deciding.settlement import give_back_failed, in_queue
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Incarnation, Removal, Return
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.lifecycle import State

#: Runs in a row that end without a report before their batch is halved (DESIGN 8).
VANISHED_RUNS_LIMIT = 3


def resume_run(work: UnitOfWork, lease: Lease, session: Session, *, call: int) -> None:
    """Resume the lease of a batch that runs again, and divide one that failed (P3, P6)."""
    if lease.is_in_doubt:
        # Nothing of it goes back before it is decided; the rows that it reads again are those that it may append again (R123).
        resume(work, lease, session.incarnation, lease.leased, call=call, counted=False, vanished_runs=lease.vanished_runs)
        return
    asked_before = session.unasked != lease.number
    rows = resumable(work, lease)
    # Only a run that had nothing but this message says anything about it, and none that was stopped (P3).
    lone = asked_before and not lease.stopped and len(lease.rows) == len(rows) == 1
    vanished_runs = lease.vanished_runs + (not lease.stopped) if asked_before and lease.failure is None else 0
    failed = lease.failure is not None or vanished_runs >= VANISHED_RUNS_LIMIT
    if len(rows) > 1 and failed:
        rows = _halve(work, lease, rows)
        vanished_runs = 0
    maximum = work.ledger.definition.max_deliveries
    if lone and lease.is_barrier and is_spent(work, work.ledger.subscriptions[lease.subscription]):
        give_up(work, lease, error=lease.failure)
        rows = BitMap64()
    elif lone and not lease.is_barrier and (failed or work.ledger.subscriptions[lease.subscription].is_stopped):
        # The batch reads empty, and the next one tries others.
        give_back_failed(work, lease, rows, Return.ISOLATED)
        rows = BitMap64()
    elif lone and maximum and work.ledger.delivered.at_least(maximum, rows):
        # The lone message of a failing batch has used its deliveries: it becomes a dead letter, and the batch reads empty.
        remove(work, rows, Removal.MAX_DELIVERIES, lease=lease, error=lease.failure)
        rows = BitMap64()
    resume(work, lease, session.incarnation, rows, call=call, counted=lone and bool(rows), vanished_runs=vanished_runs)


def resumable(work: UnitOfWork, lease: Lease) -> BitMap64:
    """Return the rows that a resume may cover: those still held, and those that came back and no order key holds up (P2).

    Rows that came back and are hidden from its principal by now are not leased to it again (R12).
    A barrier is its subscription's until the proof: nobody else gets it.
    """
    if lease.is_barrier:
        return lease.rows & work.ledger.subscriptions[lease.subscription].barriers
    # A message that was cancelled by hand, to be delivered later, is not delivered sooner by a restart.
    later = work.ledger.rows[State.DELAYED] - work.ledger.due(work.now_ms)
    came_back = in_queue(work, lease.recoverable) - lease.leased - later
    came_back = work.entitled(work.ledger.subscriptions[lease.subscription], came_back) if work.may_grant() else BitMap64()
    return lease.leased | work.ledger.selection.order_keys.together(came_back, lease.leased)


def _halve(work: UnitOfWork, lease: Lease, rows: BitMap64) -> BitMap64:
    """Give back the younger half of a failing batch; returns the older half (DESIGN 8, isolation)."""
    kept = oldest(rows, (len(rows) + 1) // 2)
    isolate(work, lease, rows - kept)
    return kept


def resume(
    work: UnitOfWork, lease: Lease, incarnation: Incarnation, rows: BitMap64, *, call: int, counted: bool, vanished_runs: int
) -> None:
    """Let a lease be `rows` from now on, for a planner start (P2)."""
    resumed = records.Resumed(
        incarnation=incarnation,
        call=call,
        # What came back undelivered was not counted when it was granted.
        counted=counted or lease.undelivered,
        vanished_runs=vanished_runs,
        barrier=lease.is_barrier,
    )
    work.emit(resumed, rows, of=lease, due_at_ms=work.now_ms + work.ledger.definition.lease_period_ms)
