"""Appending to a sink: an attempt is prepared, and then known to have landed or to be fenced (R123 to R127, DESIGN 19).

Nobody here sees a sink. The judge of an attempt sees it, decides by its rows, and says so; this side keeps messages in doubt from
everybody until then, and draws a number only once nothing earlier is in doubt.
"""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.commands import ERROR_TEXT_LIMIT, AttemptCommand, Fenced, FindAttempts, Landed, Prepare, SinkUnreadable
from spark_queue.core.deciding.batch_runs import lease_of_run, no_sink, refuse_fenced, refuse_unsuited, stale_run
from spark_queue.core.deciding.outcomes import check_outcomes, read_outcome
from spark_queue.core.deciding.resuming import resumable, resume
from spark_queue.core.deciding.settlement import settle_landed
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Outcome
from spark_queue.core.replies import Attempts, Done, Prepared
from spark_queue.core.state.attempt import AttemptNumbers
from spark_queue.core.state.in_doubt import attempt_of, attempt_summary, fenced_refusal, in_doubt, refusal
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.verdict import Verdict
from spark_queue.errors import CallerError, LeaseError

#: Longest name and id of a table, in characters.
TABLE_TEXT_LIMIT = 4_000

#: Above every version of a transaction id that is ours: such numbers travel as JSON.
_VERSION_LIMIT = 2**53


def prepare(work: UnitOfWork, command: Prepare) -> Prepared:
    """Draw the number of an attempt, and keep its messages for it alone (R123, R124).

    Granted to the current run if its messages are all still its own, or came back and are nobody's: those are leased again.
    """
    subscription = work.subscription(command.subscription)
    refuse_unsuited(work, subscription)
    lease = lease_of_run(work, subscription, command.run)
    if lease is None or lease.is_barrier or not lease.rows:
        raise no_sink(work, "its batch has no messages to acknowledge.", "Append only in a run that has messages.")
    attempt = lease.attempt
    if attempt is not None and command.request and attempt.request == command.request and not attempt.landed:
        # The reply was lost.
        return Prepared(attempt=attempt.number)
    refuse_fenced(work, lease, command.run)
    if lease.has_landed:
        raise refusal(work.ledger, lease, "appending its messages again")
    for other in in_doubt(work.ledger, lease.subscription):
        raise refusal(work.ledger, other, "another attempt")
    if lease.incarnation != command.run.incarnation:
        raise stale_run(work, command.run, lease.subscription, "the newer reader has not asked for its rows yet")
    exceptions = _exceptions(work, lease, command)
    _take_back(work, lease)
    numbers = work.ledger.attempts.get(lease.subscription, AttemptNumbers())
    # A journal that was put back from a backup never uses a number that the table has seen.
    number = max(numbers.last + 1, command.transaction_version // 2 + 1)
    told_apart = tuple((each.outcome, each.due_at_ms, each.error, tuple(to_ranges(rows))) for each, rows in exceptions if rows)
    prepared = records.Prepared(attempt=number, table=command.table, table_id=command.table_id, exceptions=told_apart)
    work.emit(prepared, lease.rows, of=lease)
    return Prepared(attempt=number)


def landed(work: UnitOfWork, command: Landed) -> Done:
    """Note that an attempt stands in its sink (R126)."""
    lease = _lease_in_doubt(work, command)
    if lease is None:
        if command.attempt in work.ledger.attempts[command.subscription].fenced:
            raise fenced_refusal(work.ledger, command.subscription, command.attempt)
        return Done()
    attempt = attempt_of(lease)
    left_out = (rows for verdict, rows in attempt.exceptions.items() if verdict.outcome != Outcome.ACKNOWLEDGE)
    there = lease.rows - BitMap64.union(BitMap64(), *left_out)
    body = records.Landed(attempt=command.attempt, table=attempt.table, version=command.table_version, forced=command.forced)
    work.emit(body, there, of=lease)
    if lease.proven:
        settle_landed(work, lease)
    return Done()


def fenced(work: UnitOfWork, command: Fenced) -> Done:
    """Note that an attempt never stands in its sink: its lease is an ordinary one again (R127)."""
    lease = _lease_in_doubt(work, command)
    if lease is not None:
        body = records.Fenced(attempt=command.attempt, table=attempt_of(lease).table, forced=command.forced)
        work.emit(body, lease.rows, of=lease)
    elif command.attempt not in work.ledger.attempts[command.subscription].fenced:
        facts = {"attempt": command.attempt, "subscription": command.subscription, "queue": command.queue}
        raise LeaseError("SINK_LANDED", table="its sink", what="fencing it", **facts)
    return Done()


def sink_unreadable(work: UnitOfWork, command: SinkUnreadable) -> Done:
    """Note why nobody can decide about an attempt; of one that is decided by now nothing is noted."""
    for lease in in_doubt(work.ledger, command.subscription):
        attempt, error = attempt_of(lease), command.error[:ERROR_TEXT_LIMIT]
        if attempt.number == command.attempt and (attempt.error, attempt.is_read) != (error, command.read):
            work.emit(records.SinkUnreadable(attempt=attempt.number, error=error, read=command.read), of=lease)
    return Done()


def find_attempts(work: UnitOfWork, command: FindAttempts) -> Attempts:
    """Name the attempts that are in doubt; changes nothing."""
    return Attempts(attempts=tuple(attempt_summary(lease) for lease in in_doubt(work.ledger, command.subscription)))


def _exceptions(work: UnitOfWork, lease: Lease, command: Prepare) -> list[tuple[Verdict, BitMap64]]:
    """Return the outcomes of messages that are not in the commit; rows that go back with one of them must not be in it either."""
    texts = (command.table, command.table_id)
    if not all(0 < len(text) <= TABLE_TEXT_LIMIT for text in texts) or not -1 <= command.transaction_version < _VERSION_LIMIT:
        raise no_sink(work, "the table's name, id or transaction version cannot be stored.", "Pass them as the table has them.")
    given = [read_outcome(work, each) for each in command.outcomes]
    check_outcomes(work, given, lease.rows, "are not in the batch")
    if work.ledger.definition.order_key is not None:
        cancelled = BitMap64.union(BitMap64(), *(rows for verdict, rows in given if verdict.outcome == Outcome.CANCEL))
        left_out = BitMap64.union(BitMap64(), *(rows for verdict, rows in given if verdict.outcome != Outcome.ACKNOWLEDGE))
        behind = work.ledger.selection.order_keys.followers(cancelled, lease.rows) - left_out
        if behind:
            reason = f"bookmark {behind.min()} goes back with a cancelled earlier message of its key."
            next_step = "Do not append it, and cancel it, too."
            raise CallerError("OUTCOME_INVALID", queue=work.ledger.definition.name, reason=reason, next_step=next_step)
    return given


def _take_back(work: UnitOfWork, lease: Lease) -> None:
    """Lease again the rows that came back from a run's batch and are nobody's; refuse where it lacks any of its messages then."""
    found = resumable(work, lease)
    lost = lease.lost | (lease.rows - found)
    if lost:
        facts = {"subscription": lease.subscription, "queue": work.ledger.definition.name, "count": len(lost)}
        raise LeaseError("SINK_ROWS_LOST", bookmark=lost.min(), **facts)
    if found != lease.leased:
        resume(work, lease, lease.incarnation, found, call=0, counted=False, vanished_runs=lease.vanished_runs)


def _lease_in_doubt(work: UnitOfWork, command: AttemptCommand) -> Lease | None:
    """Return the lease of an attempt that is in doubt; None for one that was decided about."""
    for lease in in_doubt(work.ledger, command.subscription):
        if attempt_of(lease).number == command.attempt:
            return lease
    last = work.ledger.attempts.get(command.subscription, AttemptNumbers()).last
    if not 0 < command.attempt <= last:
        facts = {"attempt": command.attempt, "subscription": command.subscription, "queue": command.queue, "last": last}
        raise CallerError("UNKNOWN_ATTEMPT", **facts)
    return None
