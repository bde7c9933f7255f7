"""How messages leave a lease: settled with an outcome, returned, or removed at a limit (R39, R41, R52 to R55, P5)."""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.deciding.barrier import receive
from spark_queue.core.deciding.isolation import confirm, is_suspect, isolate, lone_due_ms, suspect
from spark_queue.core.deciding.removal import aged, remove, remove_aged
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Outcome, Removal, Return
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.verdict import Verdict

#: The body of a record that returns messages with nothing said against them.
_RETURNED = records.Returned()


def prove(work: UnitOfWork, lease: Lease, *, acknowledges: bool) -> None:
    """End a lease whose batch Spark has committed: staged outcomes take effect, the rest is acknowledged (auto mode).

    Unless it `acknowledges`, in explicit mode, messages without an outcome stay leased until the lease ends (DESIGN 15.1).
    """
    _settle_batch(work, lease, acknowledges=acknowledges)
    if lease.succeeded:
        confirm(work, work.ledger.subscriptions[lease.subscription])
    work.emit(records.Proven(), of=lease)


def settle_early(work: UnitOfWork, lease: Lease) -> None:
    """Let all outcomes of a batch take effect before its proof; the rest of it is acknowledged (`ack_early`)."""
    _settle_batch(work, lease, acknowledges=True)


def end_lease(work: UnitOfWork, lease: Lease, reason: Return, *, undelivered: bool = False) -> None:
    """Give back the messages of a lease; staged `expire` and `cancel` hold, staged `acknowledge` is dropped (DESIGN 7).

    A batch that has landed in a sink is settled, as its proof would.
    """
    if lease.has_landed:
        settle_landed(work, lease)
        return
    apply_staged(work, lease, lease.leased, but=Outcome.ACKNOWLEDGE)
    rows = lease.leased.copy()
    if not rows:
        return
    if work.ledger.receives(lease.subscription):
        _end_silently(work, lease, rows, reason)
        return
    undelivered = undelivered or lease.stopped
    stopped = work.ledger.subscriptions[lease.subscription].is_stopped and len(lease.rows) == 1 and not undelivered
    if lease.failure is not None or stopped:
        give_back_failed(work, lease, rows, reason)
    else:
        give_back(work, rows, reason, lease=lease, returned=records.Returned(undelivered=undelivered))


def _end_silently(work: UnitOfWork, lease: Lease, rows: BitMap64, reason: Return) -> None:
    """Give back the messages of a receiver of which nothing was heard (R138).

    It had begun some of them, nobody knows which: only a message that it had alone, and of which it had said that it would begin
    now, counts as delivered. Those of a subscription that was ended by hand are marked with nothing.
    """
    is_counted = lease.confirmed and len(lease.rows) == 1 and bool(work.ledger.dying(rows))
    returned = records.Returned(undelivered=not is_counted, marked=reason != Return.UNSUBSCRIBED)
    give_back(work, rows, reason, lease=lease, returned=returned)


def settle_landed(work: UnitOfWork, lease: Lease) -> None:
    """Settle the messages of a lease as they were prepared for its sink, in which the rest of it stands (R126)."""
    apply_staged(work, lease, lease.leased)
    acknowledge(work, lease.leased.copy(), lease=lease)


def apply_staged(work: UnitOfWork, lease: Lease, within: BitMap64, *, but: Outcome | None = None) -> None:
    """Let staged outcomes act on those of their rows that are `within`; rows behind a cancelled one of their key have none."""
    cancelled = BitMap64.union(BitMap64(), *(rows for verdict, rows in lease.staged.items() if verdict.outcome == Outcome.CANCEL))
    followers = followers_of_cancelled(work, cancelled, within)
    give_back_followers(work, followers, lease=lease)
    within = within - followers
    for verdict, rows in list(lease.staged.items()):
        if verdict.outcome != but and rows.intersect(within):
            apply_verdict(work, verdict, rows & within, lease=lease)


def followers_of_cancelled(work: UnitOfWork, cancelled: BitMap64, among: BitMap64) -> BitMap64:
    """Return those of `among` that stand behind a cancelled message of their key; one that its cancel removes holds up nobody."""
    if work.ledger.definition.order_key is None or not cancelled:
        return BitMap64()
    ending = BitMap64.union(*_ended_by_cancel(work, cancelled & among))
    return work.ledger.selection.order_keys.followers(in_queue(work, cancelled) - ending, in_queue(work, among))


def give_back_followers(work: UnitOfWork, followers: BitMap64, *, lease: Lease | None) -> None:
    """Give back the rows of a lease behind a cancelled message of their key, whatever their outcome is; nothing is counted."""
    back = remove_aged(work, followers, lease=lease)
    # Rows that came back before go on waiting.
    delayed = [(due_at_ms, rows & back) for due_at_ms, rows in work.ledger.delayed.items()]
    for due_at_ms, part in [(None, back - work.ledger.rows[State.DELAYED]), *delayed]:
        if part:
            work.emit(records.Returned(), part, of=lease, reason=Return.ORDER_KEY, due_at_ms=due_at_ms)


def apply_verdict(work: UnitOfWork, verdict: Verdict, rows: BitMap64, *, lease: Lease | None) -> None:
    """Acknowledge, cancel or expire rows that are in the queue, or dead letters that are taken back."""
    if verdict.outcome == Outcome.ACKNOWLEDGE:
        acknowledge(work, rows, lease=lease)
        return
    rows = rows - work.ledger.rows[State.DEAD]
    if verdict.outcome == Outcome.EXPIRE:
        remove(work, rows, Removal.FORCED_EXPIRE, lease=lease, error=verdict.error)
    else:
        returned = records.Returned(error=verdict.error)
        _cancel(work, rows, verdict.due_at_ms, verdict.error, lease=lease, returned=returned)


def acknowledge(work: UnitOfWork, rows: BitMap64, *, lease: Lease | None) -> None:
    """Remove rows as processed; dead letters among them also leave the dead-letter queue (P5)."""
    taken_back, letters = rows & work.ledger.rows[State.DEAD], work.dead_letters
    remove(work, rows, Removal.ACKNOWLEDGED, lease=lease)
    there = BitMap64() if letters is None else taken_back & letters.entered
    if letters is not None and there:
        work.emit(records.Removed(), there, queue=letters.definition.name, reason=Removal.ACKNOWLEDGED)


def give_back(
    work: UnitOfWork,
    rows: BitMap64,
    reason: Return,
    *,
    lease: Lease | None,
    returned: records.Returned = _RETURNED,
    due_at_ms: int | None = None,
) -> None:
    """Return rows to the queue, except those past their age or their deliveries (R52)."""
    rows = remove_aged(work, rows, lease=lease)
    spent = _spent(work, rows, undelivered=returned.undelivered)
    remove(work, spent, Removal.MAX_DELIVERIES, lease=lease, error=None if lease is None else lease.failure)
    rest = rows - spent
    if rest:
        work.emit(returned, rest, of=lease, reason=reason, due_at_ms=due_at_ms)


def _settle_batch(work: UnitOfWork, lease: Lease, *, acknowledges: bool) -> None:
    if lease.is_in_doubt or lease.is_fenced:
        # Spark's commit does not show whether they stand in the sink: the judge of the attempt does.
        return
    if lease.has_landed:
        settle_landed(work, lease)
        return
    if lease.is_barrier:
        receive(work, lease)
        return
    if work.ledger.definition.at_most_once:
        return
    rows = settleable(work, lease)
    if lease.gives_back and lease.stopped:
        give_back(work, lease.leased.copy(), Return.DISCONNECTED, lease=lease, returned=records.Returned(undelivered=True))
        return
    if lease.gives_back:
        give_back_failed(work, lease, rows - work.ledger.rows[State.DEAD], Return.CANCELLED)
        return
    apply_staged(work, lease, rows)
    if acknowledges:
        _acknowledge_rest(work, lease)


def give_back_failed(work: UnitOfWork, lease: Lease, rows: BitMap64, reason: Return) -> None:
    """Give back the rest of a failed batch: several messages are innocent, a lone one is tried alone later (DESIGN 15.12)."""
    if len(lease.rows) > 1:
        isolate(work, lease, rows)
        return
    give_back_lone(work, lease, rows, Return.CANCELLED if lease.gives_back else reason, error=lease.failure)


def give_back_lone(work: UnitOfWork, lease: Lease, rows: BitMap64, reason: Return, *, error: str | None) -> None:
    """Give back a message that failed by itself: by its own fault, or by its consumer's (DESIGN 15.12)."""
    rows = remove_aged(work, rows, lease=lease)
    if not rows:
        return
    due_at_ms, counted = lone_due_ms(work, rows), records.Returned(alone=True, counts=True, error=error)
    if is_suspect(work, lease, rows, error=error):
        suspect(work, lease, rows, reason, due_at_ms=due_at_ms, error=error)
    elif reason == Return.CANCELLED:
        _cancel(work, rows, due_at_ms, error, lease=lease, returned=counted)
    else:
        give_back(work, rows, reason, lease=lease, returned=counted, due_at_ms=due_at_ms)


def _cancel(
    work: UnitOfWork,
    rows: BitMap64,
    due_at_ms: int | None,
    error: str | None,
    *,
    lease: Lease | None,
    returned: records.Returned,
) -> None:
    over_limit, over_age, spent = _ended_by_cancel(work, rows)
    remove(work, over_limit, Removal.MAX_CANCELS, lease=lease, error=error, uncounted_cancels=1)
    remove(work, over_age, Removal.TIME_LIMIT, lease=lease)
    remove(work, spent, Removal.MAX_DELIVERIES, lease=lease, error=error, uncounted_cancels=1)
    for due, part in _retries(work, rows - over_limit - over_age - spent, due_at_ms):
        work.emit(returned, part, of=lease, reason=Return.CANCELLED, due_at_ms=due)


def _ended_by_cancel(work: UnitOfWork, rows: BitMap64) -> tuple[BitMap64, BitMap64, BitMap64]:
    """Return the rows that were cancelled as often as they may be, and of the others those past their age, or their deliveries."""
    limit = work.ledger.definition.max_cancels
    over_limit = work.ledger.cancelled.at_least(limit, rows) if limit else BitMap64()
    over_age = aged(work, rows - over_limit)
    return over_limit, over_age, _spent(work, rows - over_limit - over_age)


def _retries(work: UnitOfWork, rows: BitMap64, due_at_ms: int | None) -> Iterator[tuple[int | None, BitMap64]]:
    """Yield cancelled rows with the time at which they become available: as they were cancelled, or by `retry_backoff`."""
    backoff = work.ledger.definition.retry_backoff
    if due_at_ms is not None or backoff is None:
        if rows:
            yield due_at_ms if due_at_ms is not None and due_at_ms > work.now_ms else None, rows
        return
    for cancels, part in list(work.ledger.cancelled.split(rows)):
        yield work.now_ms + backoff.delay_ms(cancels), part


def _acknowledge_rest(work: UnitOfWork, lease: Lease) -> None:
    """Acknowledge the rows of a batch without another outcome; a dead letter that it wanted cancelled or expired stays one."""
    refused = (rows for verdict, rows in lease.staged.items() if verdict.outcome != Outcome.ACKNOWLEDGE)
    acknowledge(work, settleable(work, lease) - BitMap64.union(BitMap64(), *refused), lease=lease)


def _spent(work: UnitOfWork, rows: BitMap64, *, undelivered: bool = False) -> BitMap64:
    """Return the rows that were delivered as often as they may be."""
    maximum = work.ledger.definition.max_deliveries
    # A grant that nobody asked for counts no longer once its messages are back.
    return work.ledger.delivered.at_least(maximum + undelivered, rows) if maximum else BitMap64()


def settleable(work: UnitOfWork, lease: Lease) -> BitMap64:
    """Return the rows that a lease's batch may still settle: not in a later lease, or dead letters that its own end made (P5)."""
    if len(lease.leased) == len(lease.recoverable):
        return lease.leased.copy()
    dead = BitMap64() if work.are_letters_unknown else lease.recoverable & work.ledger.rows[State.DEAD]
    letters = work.dead_letters
    if dead and letters is not None:
        dead -= letters.entered - letters.rows[State.AVAILABLE] - letters.rows[State.INACTIVE] - letters.dead_letters.lost
    return dead | in_queue(work, lease.recoverable)


def in_queue(work: UnitOfWork, rows: BitMap64) -> BitMap64:
    """Return those of `rows` that are in the active part of the queue: available, leased or delayed."""
    members = work.ledger.rows
    return (rows & members[State.AVAILABLE]) | (rows & members[State.LEASED]) | (rows & members[State.DELAYED])
