"""Settling messages by list or by filter, and purging them (R36 to R40, DESIGN 15.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.commands import Purge, Settle, SettleWhere
from spark_queue.core.deciding.instances.claims import claim, claimable
from spark_queue.core.deciding.outcomes import check_outcomes, read_outcome, read_verdict, refuse_barriers, stage
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.settlement import apply_verdict, followers_of_cancelled, give_back_followers, in_queue
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Outcome, Removal
from spark_queue.core.replies import Purged, Settled
from spark_queue.core.state.in_doubt import refusal
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.verdict import Verdict
from spark_queue.errors import LeaseError

#: Under which name of `Settled` the messages of an outcome are counted.
_COUNTED = {Outcome.ACKNOWLEDGE: "acknowledged", Outcome.CANCEL: "cancelled", Outcome.EXPIRE: "expired"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Messages with a verdict, and the lease under which their caller received them."""

    verdict: Verdict
    rows: BitMap64
    #: The lease that was named, if one was, and that lease while it is known.
    named: int | None = None
    lease: Lease | None = None


def settle(work: UnitOfWork, command: Settle) -> Settled:
    """Settle the listed messages, all of them or none.

    Outcomes of leased messages are staged before the proof of the lease; after it, they act while that lease holds them; later
    only an acknowledge is accepted. Outcomes without a lease act at once.
    """
    given = [read_outcome(work, each) for each in command.outcomes]
    # For the caller a hidden message does not exist.
    known = _seen_of(work, given) if work.row_filters() else work.ledger.entered
    check_outcomes(work, given, known, "never entered the queue")
    refuse_barriers(work, given)
    if work.ledger.definition.at_most_once:
        # R40: these messages are gone already; the proof of their batch frees the backlog (R17).
        return Settled(repeated=sum(len(rows) for _, rows in given))
    leases = [None if each.lease is None else work.ledger.leases.get(each.lease) for each in command.outcomes]
    parts = [
        _Part(verdict=verdict, rows=rows, named=each.lease, lease=lease)
        for (verdict, rows), each, lease in zip(given, command.outcomes, leases, strict=True)
    ]
    for _, rows in given:
        for lease, held in _in_sinks(work, rows):
            raise refusal(work.ledger, lease, f"settling bookmark {held.min()} by hand")
    lost, leased = claimable(work, of_living=command.of_owner), work.visible_to_caller(work.ledger.rows[State.LEASED].copy())
    plans = [_plan(work, each, lost) for each in parts]
    claim(work, lost & BitMap64.union(BitMap64(), *(rows for _, rows in given)))
    counts: Counter[str] = Counter()
    for part, (staged, _) in zip(parts, plans, strict=True):
        if part.lease is not None:
            stage(work, part.lease, ((part.verdict, staged),))
        counts[_COUNTED[Outcome(part.verdict.outcome)]] += len(staged)
    _settle_now(work, [now for _, now in plans], counts, seen=leased)
    return Settled(**counts)


def settle_where(work: UnitOfWork, command: SettleWhere) -> Settled:
    """Settle the messages that match a filter, leased or not (R37).

    Of a queue with a target depth only the active part is looked at. Leased messages are left alone by strict leasing (R38), and
    those in doubt or in a sink always (R123). A cancel finds leased messages only: the others are in the queue already.
    """
    verdict = read_verdict(work, command.outcome, command.retry_after_ms, command.error)
    ledger = work.ledger
    leased = ledger.rows[State.LEASED]
    lost, seen = work.visible_to_caller(claimable(work, of_living=command.of_owner)), work.visible_to_caller(leased.copy())
    among = leased.copy() if verdict.outcome == Outcome.CANCEL else in_queue(work, ledger.entered)
    matching = work.matching(command.where, work.visible_to_caller(among) | lost)
    # Files are read before anything is recorded: one may be gone.
    claim(work, matching & lost)
    rows = matching & leased if verdict.outcome == Outcome.CANCEL else in_queue(work, matching)
    untouched = rows if ledger.definition.at_most_once else rows & leased if ledger.definition.leasing == "strict" else BitMap64()
    untouched = BitMap64.union(untouched, *(held for _, held in _in_sinks(work, rows)))
    counts = Counter(skipped=len(untouched))
    _settle_now(work, [_Part(verdict=verdict, rows=rows - untouched)], counts, seen=seen)
    return Settled(**counts)


def _in_sinks(work: UnitOfWork, rows: BitMap64) -> Iterator[tuple[Lease, BitMap64]]:
    """Yield which of `rows` are in doubt or in a sink, with their lease: the sink decides about these, and nobody else."""
    for lease in work.ledger.leases.values():
        if lease.attempt is not None and (held := lease.leased & rows):
            yield lease, held


def purge(work: UnitOfWork, command: Purge) -> Purged:
    """Remove the messages that are not leased, or those of them that match a filter; they become no dead letters (R13)."""
    members, lost = work.ledger.rows, work.visible_to_caller(claimable(work))
    leased = work.visible_to_caller(members[State.LEASED].copy())
    rows = lost | work.visible_to_caller((in_queue(work, work.ledger.entered) - members[State.LEASED]) | members[State.INACTIVE])
    if command.where is not None:
        rows, leased = work.matching(command.where, rows), work.matching(command.where, leased)
    claim(work, rows & lost)
    remove(work, rows, Removal.PURGED)
    return Purged(purged=len(rows), leased=len(leased))


def _seen_of(work: UnitOfWork, given: Collection[tuple[Verdict, BitMap64]]) -> BitMap64:
    """Return which of the messages that outcomes name are not hidden from the caller; those that retention let go are."""
    named = BitMap64.union(BitMap64(), *(rows for _, rows in given))
    return work.visible_to_caller(named & work.ledger.entered)


def settled_before(_: JournalState, command: Settle) -> Settled:
    """Answer a settlement that took effect before, and whose reply was lost."""
    return Settled(repeated=sum(until - first for each in command.outcomes for first, until in each.ranges))


def settled_where_before(state: JournalState, command: SettleWhere) -> Settled:
    """Answer a settlement by filter that took effect before, and whose reply was lost."""
    return Settled(repeated=state.messages_of(command.request))


def purged_before(state: JournalState, command: Purge) -> Purged:
    """Answer a purge that took effect before, and whose reply was lost."""
    return Purged(purged=state.messages_of(command.request), leased=len(state.ledger(command.queue).rows[State.LEASED]))


def _plan(work: UnitOfWork, part: _Part, lost: BitMap64) -> tuple[BitMap64, _Part]:
    """Return the rows of a part that are staged with its lease, and the part that acts at once; refuse forbidden outcomes.

    Messages that are `lost` count as in the queue, and are claimed once nothing is refused.
    """
    staged, lease = BitMap64(), part.lease
    if lease is not None and not lease.proven and not work.ledger.receives(lease.subscription):
        check_outcomes(work, ((part.verdict, part.rows),), lease.rows, f"are not in lease {lease.number}")
        # Rows that another has taken from the lease are settled as after its end.
        staged = part.rows & lease.recoverable
    now = replace(part, rows=part.rows - staged)
    _check_permitted(work, now, lost)
    return staged, now


def _check_permitted(work: UnitOfWork, part: _Part, lost: BitMap64) -> None:
    """Refuse outcomes that are too late, unless they acknowledge, and those that strict leasing forbids (R38)."""
    ledger, outcome = work.ledger, part.verdict.outcome
    rows = in_queue(work, part.rows) | (part.rows & lost)
    held = BitMap64() if part.lease is None else rows & part.lease.leased
    if outcome != Outcome.ACKNOWLEDGE:
        allowed = held if part.named is not None else rows & ledger.rows[State.LEASED]
        if outcome == Outcome.EXPIRE and part.named is None:
            allowed = rows
        _refuse(work, replace(part, rows=part.rows - allowed))
    if ledger.definition.leasing == "strict":
        _check_holder(work, (rows & ledger.rows[State.LEASED]) - held)


def _refuse(work: UnitOfWork, part: _Part) -> None:
    """Refuse an outcome, if it has rows, by the present state of the first of them."""
    ledger = work.ledger
    known = ledger.delivered.at_least(1, part.rows) | BitMap64.union(BitMap64(), *(lease.rows for lease in ledger.leases.values()))
    still, take = "Only 'acknowledge' is still accepted.", "Acknowledge or expire them, or leave them out."
    cases = [
        (ledger.rows[State.INACTIVE], "they are not active yet", "Only 'acknowledge' is accepted, for when their turn comes."),
        (ledger.rows[State.DEAD], "they are dead letters", "Redrive them, or leave them out."),
        (ledger.rows[State.REMOVED], "they have left the queue", "Leave them out."),
    ]  # fmt: skip
    if part.named is not None:
        cases.append((part.rows, "the lease that delivered them is over", still))
    cases += [
        (ledger.rows[State.DELAYED], "they are not leased, but delayed", take),
        (known, "they are not leased any more, and are back in the queue", take),
        (part.rows, "they were never leased, so there is nothing to give back", take),
    ]
    for rows, reason, next_step in cases:
        found = part.rows & rows
        if found and part.rows.min() in found:
            facts = {"count": len(found), "bookmark": found.min(), "outcome": part.verdict.outcome, "reason": reason}
            raise LeaseError("LEASE_SETTLED", queue=ledger.definition.name, next_step=next_step, **facts)


def _check_holder(work: UnitOfWork, foreign: BitMap64) -> None:
    for lease in work.ledger.leases.values():
        if lease.leased.intersect(foreign):
            first = (lease.leased & foreign).min()
            name, until = work.ledger.definition.name, datetime.fromtimestamp(lease.due_at_ms / 1_000, UTC).isoformat()
            raise LeaseError("LEASE_HELD", bookmark=first, queue=name, holder=lease.subscription, leased_until=until)


def _settle_now(work: UnitOfWork, parts: Collection[_Part], counts: Counter[str], *, seen: BitMap64) -> None:
    """Let outcomes act, each by the lease under which it was given; messages behind a cancelled one of their key have none.

    `seen` are the leased messages that are not hidden from the caller, found before anything is recorded, since that may need a
    file.
    """
    behind = BitMap64()
    for part in parts:
        if part.verdict.outcome == Outcome.CANCEL:
            followers = followers_of_cancelled(work, part.rows, work.ledger.rows[State.LEASED])
            give_back_followers(work, followers, lease=part.lease)
            behind |= followers
    counts["behind"] = len(behind & seen)
    for part in parts:
        _act(work, replace(part, rows=part.rows - behind), counts)


def _act(work: UnitOfWork, part: _Part, counts: Counter[str]) -> None:
    rows, inactive = in_queue(work, part.rows), part.rows & work.ledger.rows[State.INACTIVE]
    counts["repeated"] += len(part.rows) - len(rows) - len(inactive)
    if inactive:
        until_ms = work.now_ms + work.ledger.definition.deferred_ack_expiration_ms
        work.emit(records.Deferred(), inactive, due_at_ms=until_ms)
        counts["deferred"] += len(inactive)
    if part.named is not None:
        counts["late"] += len(rows) - (0 if part.lease is None else len(rows & part.lease.leased))
    # A lease that is named for messages that it never had is not the one that its records name.
    inside = BitMap64() if part.lease is None else rows & part.lease.rows
    for some, of in ((inside, part.lease), (rows - inside, None)):
        if some:
            apply_verdict(work, part.verdict, some, lease=of)
    counts[_COUNTED[Outcome(part.verdict.outcome)]] += len(rows)
