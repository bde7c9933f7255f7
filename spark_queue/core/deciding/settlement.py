"""How messages leave a lease: settled with an outcome, returned, or removed at a limit (R39, R41, R52 to R55, P5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.deciding.barrier import receive
from spark_queue.core.deciding.isolation import confirm, failed_alone, is_suspect, isolate, lone_due_ms, suspect
from spark_queue.core.deciding.removal import aged, remove, remove_aged
from spark_queue.core.deciding.turn import Turn
from spark_queue.core.records import Kind, Outcome, Removal, Return
from spark_queue.core.state.lease import Lease, Staged
from spark_queue.core.state.lifecycle import State


def prove(turn: Turn, lease: Lease, *, acknowledges: bool) -> None:
    """End a lease whose batch Spark has committed: staged outcomes take effect, the rest is acknowledged (auto mode).

    Parameters
    ----------
    acknowledges : bool
        False in explicit mode, where what was not settled stays leased until the lease ends (DESIGN 15.1).
    """
    _settle_batch(turn, lease, acknowledges=acknowledges)
    if lease.succeeded:
        confirm(turn, turn.ledger.subscriptions[lease.subscription])
    turn.emit(Kind.PROVEN, of=lease)


def settle_early(turn: Turn, lease: Lease) -> None:
    """Let everything that a batch said take effect before its proof; the rest of it is acknowledged (`ack_early`)."""
    _settle_batch(turn, lease, acknowledges=True)


def end_lease(turn: Turn, lease: Lease, reason: Return, *, undelivered: bool = False) -> None:
    """Give back what a lease still holds; staged `expire` and `cancel` hold, staged `acknowledge` is dropped (DESIGN 7)."""
    apply_staged(turn, lease, lease.held, but=Outcome.ACKNOWLEDGE)
    rows = lease.held.copy()
    if not rows:
        return
    stopped = turn.ledger.subscriptions[lease.subscription].is_stopped and len(lease.rows) == 1 and not undelivered
    if lease.failure is not None or stopped:
        give_back_failed(turn, lease, rows, reason)
    else:
        give_back(turn, rows, reason, lease=lease, undelivered=undelivered)


def apply_staged(turn: Turn, lease: Lease, within: BitMap64, *, but: Outcome | None = None) -> None:
    """Let staged outcomes take effect on those of their rows that are `within`; what stands behind a cancelled one has none."""
    cancelled = BitMap64.union(BitMap64(), *(rows for key, rows in lease.staged.items() if key[0] == Outcome.CANCEL))
    within = within - give_back_followers(turn, cancelled, within, lease=lease)
    for key, rows in list(lease.staged.items()):
        if key[0] != but and rows.intersect(within):
            apply_outcome(turn, key, rows & within, lease=lease)


def give_back_followers(turn: Turn, cancelled: BitMap64, among: BitMap64, *, lease: Lease | None) -> BitMap64:
    """Give back what of a lease stands behind a cancelled message of its key, whatever was said of it; gives what that is.

    Nothing is counted against it. A message whose cancel ends its life holds up nobody.
    """
    if turn.ledger.definition.order_key is None or not cancelled:
        return BitMap64()
    ending = BitMap64.union(*_ended_by_cancel(turn, cancelled & among))
    followers = turn.ledger.selection.order_keys.followers(in_queue(turn, cancelled) - ending, in_queue(turn, among))
    back = remove_aged(turn, followers, lease=lease)
    # What came back before, and waits, waits on.
    delayed = [(due_at_ms, rows & back) for due_at_ms, rows in turn.ledger.delayed.items()]
    for due_at_ms, part in [(None, back - turn.ledger.rows[State.DELAYED]), *delayed]:
        if part:
            turn.emit(Kind.RETURNED, part, of=lease, reason=Return.ORDER_KEY, due_at_ms=due_at_ms)
    return followers


def apply_outcome(turn: Turn, key: Staged, rows: BitMap64, *, lease: Lease | None) -> None:
    """Acknowledge, cancel or expire rows that are in the queue, or dead letters that are taken back."""
    outcome, due_at_ms, error = key
    if outcome == Outcome.ACKNOWLEDGE:
        acknowledge(turn, rows, lease=lease)
        return
    rows = rows - turn.ledger.rows[State.DEAD]
    if outcome == Outcome.EXPIRE:
        remove(turn, rows, Removal.FORCED_EXPIRE, lease=lease, error=error)
    else:
        _cancel(turn, rows, due_at_ms, error, lease=lease)


def acknowledge(turn: Turn, rows: BitMap64, *, lease: Lease | None) -> None:
    """Remove rows as processed; dead letters among them also leave the dead-letter queue (P5)."""
    taken_back, letters = rows & turn.ledger.rows[State.DEAD], turn.dead_letters
    remove(turn, rows, Removal.ACKNOWLEDGED, lease=lease)
    there = BitMap64() if letters is None else taken_back & letters.entered
    if letters is not None and there:
        turn.emit(Kind.REMOVED, there, queue=letters.definition.name, reason=Removal.ACKNOWLEDGED)


def give_back(
    turn: Turn, rows: BitMap64, reason: Return, *, lease: Lease | None, undelivered: bool = False, **returned: Any
) -> None:
    """Return rows to the queue, except those past their age or their deliveries (R52)."""
    rows = remove_aged(turn, rows, lease=lease)
    spent = _spent(turn, rows, undelivered=undelivered)
    remove(turn, spent, Removal.MAX_DELIVERIES, lease=lease, error=None if lease is None else lease.failure)
    rest = rows - spent
    if rest:
        returned = {"detail": {"undelivered": True} if undelivered else {}} | returned
        turn.emit(Kind.RETURNED, rest, of=lease, reason=reason, **returned)


def _settle_batch(turn: Turn, lease: Lease, *, acknowledges: bool) -> None:
    if lease.is_barrier:
        receive(turn, lease)
        return
    if turn.ledger.definition.at_most_once:
        return
    rows = _settleable(turn, lease)
    if lease.gives_back:
        give_back_failed(turn, lease, rows - turn.ledger.rows[State.DEAD], Return.CANCELLED)
        return
    apply_staged(turn, lease, rows)
    if acknowledges:
        _acknowledge_rest(turn, lease)


def give_back_failed(turn: Turn, lease: Lease, rows: BitMap64, reason: Return) -> None:
    """Give back what a failed batch still has: several messages are innocent, a lone one is tried alone later (DESIGN 15.12)."""
    if len(lease.rows) > 1:
        isolate(turn, lease, rows)
        return
    rows = remove_aged(turn, rows, lease=lease)
    if not rows:
        return
    reason, due_at_ms = Return.CANCELLED if lease.gives_back else reason, lone_due_ms(turn, rows)
    counted = failed_alone(lease) | {"counts": True}
    if is_suspect(turn, lease):
        suspect(turn, lease, reason, due_at_ms=due_at_ms)
    elif reason == Return.CANCELLED:
        _cancel(turn, rows, due_at_ms, lease.failure, lease=lease, detail=counted)
    else:
        give_back(turn, rows, reason, lease=lease, due_at_ms=due_at_ms, detail=counted)


def _cancel(
    turn: Turn, rows: BitMap64, due_at_ms: int | None, error: str | None, *, lease: Lease | None, detail: Mapping[str, Any] = {}
) -> None:
    over_limit, over_age, spent = _ended_by_cancel(turn, rows)
    remove(turn, over_limit, Removal.MAX_CANCELS, lease=lease, error=error, uncounted_cancels=1)
    remove(turn, over_age, Removal.TIME_LIMIT, lease=lease)
    remove(turn, spent, Removal.MAX_DELIVERIES, lease=lease, error=error, uncounted_cancels=1)
    detail = dict(detail) | ({} if error is None else {"error": error})
    for due, part in _retries(turn, rows - over_limit - over_age - spent, due_at_ms):
        turn.emit(Kind.RETURNED, part, of=lease, reason=Return.CANCELLED, due_at_ms=due, detail=detail)


def _ended_by_cancel(turn: Turn, rows: BitMap64) -> tuple[BitMap64, BitMap64, BitMap64]:
    """Return the rows that were cancelled as often as they may be, and of the others those past their age, or their deliveries."""
    limit = turn.ledger.definition.max_cancels
    over_limit = turn.ledger.cancelled.at_least(limit, rows) if limit else BitMap64()
    over_age = aged(turn, rows - over_limit)
    return over_limit, over_age, _spent(turn, rows - over_limit - over_age)


def _retries(turn: Turn, rows: BitMap64, due_at_ms: int | None) -> Iterator[tuple[int | None, BitMap64]]:
    """Yield cancelled rows with the time at which they become available: as they were cancelled, or by `retry_backoff`."""
    backoff = turn.ledger.definition.retry_backoff
    if due_at_ms is not None or backoff is None:
        if rows:
            yield due_at_ms if due_at_ms is not None and due_at_ms > turn.now_ms else None, rows
        return
    for cancels, part in list(turn.ledger.cancelled.split(rows)):
        yield turn.now_ms + backoff.delay_ms(cancels), part


def _acknowledge_rest(turn: Turn, lease: Lease) -> None:
    """Acknowledge what a batch said nothing else of; a dead letter that it wanted cancelled or expired stays one."""
    refused = (rows for (outcome, _, _), rows in lease.staged.items() if outcome != Outcome.ACKNOWLEDGE)
    acknowledge(turn, _settleable(turn, lease) - BitMap64.union(BitMap64(), *refused), lease=lease)


def _spent(turn: Turn, rows: BitMap64, *, undelivered: bool = False) -> BitMap64:
    """Return the rows that were delivered as often as they may be."""
    maximum = turn.ledger.definition.max_deliveries
    # A grant that nobody asked for counts no longer once its messages are back.
    return turn.ledger.delivered.at_least(maximum + undelivered, rows) if maximum else BitMap64()


def _settleable(turn: Turn, lease: Lease) -> BitMap64:
    """Return what a lease's batch may still settle: what nobody else has taken, and dead letters that its own end made (P5)."""
    if len(lease.held) == len(lease.claim):
        return lease.held.copy()
    dead = lease.claim & turn.ledger.rows[State.DEAD]
    letters = turn.dead_letters
    if dead and letters is not None:
        dead -= letters.entered - letters.rows[State.AVAILABLE] - letters.rows[State.INACTIVE]
    return dead | in_queue(turn, lease.claim)


def in_queue(turn: Turn, rows: BitMap64) -> BitMap64:
    """Return those of `rows` that are in the active part of the queue: available, leased or delayed."""
    members = turn.ledger.rows
    return (rows & members[State.AVAILABLE]) | (rows & members[State.LEASED]) | (rows & members[State.DELAYED])
