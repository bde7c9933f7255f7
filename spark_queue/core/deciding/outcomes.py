"""Outcomes of a batch: read, checked and staged, before a proof lets them take effect (P4)."""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.commands import ERROR_TEXT_LIMIT, OutcomeRows
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.definitions.keys import DURATION_LIMIT_MS
from spark_queue.core.records import Outcome, Ranges
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.verdict import Verdict
from spark_queue.errors import CallerError, nearest

_NAME_KNOWN_ROWS = "Nothing was settled. Name only rows that were read there."


def read_outcome(work: UnitOfWork, given: OutcomeRows) -> tuple[Verdict, BitMap64]:
    """Return the verdict of an outcome, and its messages."""
    verdict = read_verdict(work, given.outcome, given.retry_after_ms, given.error)
    return verdict, read_rows(work.state, work.ledger.definition.name, given.ranges)


def read_rows(state: JournalState, queue: str, ranges: Ranges) -> BitMap64:
    """Return the bookmarks that a command names."""
    check_ranges(queue, ranges)
    entered_until = state.message_types[state.ledger(queue).definition.message_type].entered_until
    for first, until in ranges:
        # Before a bitmap is made of it: an absurd range would fill the memory.
        if until > entered_until:
            unknown = max(first, entered_until)
            facts = {"count": until - unknown, "bookmark": unknown, "reason": "never entered the queue"}
            raise CallerError("UNKNOWN_BOOKMARK", queue=queue, next_step=_NAME_KNOWN_ROWS, **facts)
    return to_bitmap(ranges)


def check_ranges(queue: str, ranges: Ranges) -> None:
    """Refuse ranges that are none of bookmarks."""
    for first, until in ranges:
        if not 0 <= first < until:
            reason = f"[{first}, {until}) is no range of bookmarks."
            raise CallerError("OUTCOME_INVALID", queue=queue, reason=reason, next_step="Give bookmarks as they were read.")


def read_verdict(work: UnitOfWork, outcome: str, retry_after_ms: int | None, error: str | None) -> Verdict:
    """Return the verdict of an outcome without its messages."""
    queue, known = work.ledger.definition.name, [each.value for each in Outcome]
    if outcome not in known:
        next_step = f"Use one of: {', '.join(known)}.{nearest(outcome, known)}"
        raise CallerError("OUTCOME_INVALID", queue=queue, reason=f"'{outcome}' is no outcome.", next_step=next_step)
    due_at_ms = None
    if retry_after_ms is not None:
        # A time that no record could hold would end the reign at its commit, and the next one, as often as the caller asks again.
        if outcome != Outcome.CANCEL or not 0 <= retry_after_ms <= DURATION_LIMIT_MS:
            reason = f"retry_after of {retry_after_ms} ms with '{outcome}'."
            next_step = "Give retry_after only with cancel, not negative, and of a century at most."
            raise CallerError("OUTCOME_INVALID", queue=queue, reason=reason, next_step=next_step)
        due_at_ms = work.now_ms + retry_after_ms
    return Verdict(Outcome(outcome), due_at_ms, None if error is None else error[:ERROR_TEXT_LIMIT])


def check_outcomes(work: UnitOfWork, given: Iterable[tuple[Verdict, BitMap64]], known: BitMap64, reason: str) -> None:
    """Refuse rows that are not `known`, for a reason, and rows that are named twice."""
    named = BitMap64()
    name = work.ledger.definition.name
    for _, rows in given:
        unknown = rows - known
        if unknown:
            facts = {"count": len(unknown), "bookmark": unknown.min(), "reason": reason}
            raise CallerError("UNKNOWN_BOOKMARK", queue=name, next_step=_NAME_KNOWN_ROWS, **facts)
        twice = named & rows
        if twice:
            text = f"bookmark {twice.min()} has two outcomes."
            raise CallerError("OUTCOME_INVALID", queue=name, reason=text, next_step="Name each row once.")
        named |= rows


def refuse_barriers(work: UnitOfWork, given: Iterable[tuple[Verdict, BitMap64]]) -> None:
    """Refuse to settle a barrier: it needs no outcome (R71). To acknowledge one that was released changes nothing, and may be."""
    ledger = work.ledger
    for verdict, rows in given:
        refused = rows & (ledger.rows[State.HELD] if verdict.outcome == Outcome.ACKNOWLEDGE else ledger.barriers)
        if refused:
            reason = f"bookmark {refused.min()} is a barrier, which leaves the queue by itself once nothing is before it."
            next_step = "Leave out rows whose is_barrier is true."
            raise CallerError("OUTCOME_INVALID", queue=ledger.definition.name, reason=reason, next_step=next_step)


def stage(work: UnitOfWork, lease: Lease, given: Iterable[tuple[Verdict, BitMap64]]) -> None:
    """Note outcomes of a lease's rows until its proof, or its end."""
    for verdict, rows in given:
        if rows:
            body = records.Outcomes(error=verdict.error)
            work.emit(body, rows, of=lease, reason=verdict.outcome, due_at_ms=verdict.due_at_ms)
