"""Claims: messages of an owner that cannot be reached (R108 to R110)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.deciding.instances.liveness import ClaimVerdict
from spark_queue.core.deciding.instances.transfers import transfer
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import CLAIMED, RETURNED_CLAIM
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import Ownership


def claimable(work: UnitOfWork, *, of_living: bool = False) -> BitMap64:
    """Return the messages that may be claimed: of owners that cannot be reached, while somebody allows it (R108, R109).

    With them are claimed messages not granted yet, to be ended by hand. An end by hand of messages of any owner, which hears
    of it, may claim those `of_living` ones, too.
    """
    ownership = work.ledger.ownership
    if work.ledger.definition.at_most_once or not (of_living or ownership.claims_from):
        return BitMap64()
    owned = ownership.of_others(work.ledger.rows[State.REMOTE], None if of_living else _lost(work, ownership)).values()
    rows = BitMap64.union(ownership.claimed_rows, *owned)
    return rows - ownership.of_last_term(rows)


def _lost(work: UnitOfWork, ownership: Ownership) -> set[str]:
    """Return the owners that cannot be reached, and whose messages may be claimed by somebody's permission."""
    after_ms = work.state.definitions.replication.unreachable_after_ms
    allowed = ownership.others() & ownership.claims_from
    return {owner for owner in allowed if work.liveness.is_lost(owner, after_ms=after_ms)}


def claim(work: UnitOfWork, rows: BitMap64, *, awaits_look: bool = False) -> BitMap64:
    """Claim those of `rows` that another instance owns, and may be claimed; returns the others (R110).

    A claim for a grant `awaits_look`: another look must find the owner silent still, since this coordinator may stop, or sleep,
    between its decision and its commit. Messages that end in the same commit need none.
    """
    ownership, foreign = work.ledger.ownership, rows & work.ledger.rows[State.REMOTE]
    if not foreign:
        return rows
    for owner in ownership.of_others(foreign) if awaits_look else ():
        work.liveness.note_claim(work.ledger.definition.name, owner)
    transfer(work, foreign, ownership.instance, reason=CLAIMED, awaits_look=awaits_look)
    return rows - foreign


def end_claims(work: UnitOfWork) -> None:
    """Let claimed messages be granted, or give them back, by the signs of life of their owner since (R110)."""
    ownership, queue = work.ledger.ownership, work.ledger.definition.name
    for owner, rows in list(ownership.claims.items()):
        verdict = work.liveness.verdict(queue, owner)
        if verdict is ClaimVerdict.OPEN:
            continue
        if verdict is ClaimVerdict.STANDS:
            work.emit(records.ClaimConfirmed(), rows)
        else:
            transfer(work, rows, owner, reason=RETURNED_CLAIM)
        work.liveness.forget_claim(queue, owner)
