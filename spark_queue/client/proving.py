"""Proofs from a checkpoint: of a batch that Spark has committed, and that its query could not prove (R49).

A query that reads until nothing is left ends with the commit of its last batch, and its planner makes no further call. A
listener hears of that commit where Spark has one; if the driver died first, only the checkpoint still knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_queue.client import coordinator_client
from spark_queue.client.dry_runs import try_out
from spark_queue.core.commands import Prove
from spark_queue.core.records import Removal
from spark_queue.core.replies import Run
from spark_queue.core.state.subscription import Subscription
from spark_queue.errors import LeaseError
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.views import JournalView, state_at

_NUMBER = re.compile(r"(?:.*/)?(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenLease:
    """A lease whose batch a checkpoint shows to be committed."""

    queue: str
    subscription: str
    lease: int
    #: Messages that the proof acknowledged; those that others have by now are left alone (P5).
    messages: int
    #: Whether its batch was a barrier, which the proof let its subscription have received.
    is_barrier: bool = False
    #: Whether it had been proven before, so that nothing was left to prove.
    was_proven: bool = False


def prove(store: Store, endpoint: Endpoint, checkpoint: Store) -> list[ProvenLease]:
    """Prove the newest committed batch of each queue stream of a query.

    Raises
    ------
    LeaseError
        NOTHING_TO_PROVE where the checkpoint has no committed batch; CHECKPOINT_FOREIGN where its last one is none of a queue of
        this journal, or one that the journal never granted; STALE_RUN where a newer reader took over just now.
    """
    view = state_at(open_journal(store))
    newest = _newest_committed(checkpoint)
    if newest is None:
        raise LeaseError("NOTHING_TO_PROVE", checkpoint=checkpoint.path)
    told = [offset for offset in _offsets_of(checkpoint, newest) if offset["journal"] == view.state.journal_id]
    if not told:
        expected = f"one of a queue of journal {view.state.journal_id}"
        raise LeaseError("CHECKPOINT_FOREIGN", what=f"a last committed batch, {newest}", expected=expected)
    found = [_proven(view, offset) for offset in told]
    for each in found:
        if not each.was_proven:
            subscription = view.state.ledger(each.queue).subscriptions[each.subscription]
            proof = _proof(each.lease, each.queue, subscription)
            coordinator_client.call_once(store, view.state.journal_id, proof, endpoint=endpoint)
    return found


def _proven(view: JournalView, offset: Mapping[str, Any]) -> ProvenLease:
    """Return the lease to prove, with the effect of its proof, which is tried out on the journal in memory."""
    who = {"queue": str(offset["queue"]), "subscription": str(offset["subscription"])}
    ledger, number = view.state.ledger(who["queue"]), int(offset["lease"])
    subscription = ledger.subscriptions.get(who["subscription"])
    newest = 0 if subscription is None else subscription.lease
    if number > newest:
        expected = f"one that queue '{who['queue']}' has granted to subscription '{who['subscription']}', whose newest is {newest}"
        raise LeaseError("CHECKPOINT_FOREIGN", what=f"lease {number}", expected=expected)
    lease = ledger.leases.get(number)
    if subscription is None or number < newest or (lease is not None and lease.proven):
        # A subscription is given a new lease only with the proof of the one before.
        return ProvenLease(**who, lease=number, messages=0, is_barrier=False, was_proven=True)
    acknowledged, barriers = ledger.removed_counts[Removal.ACKNOWLEDGED], subscription.barriers.copy()
    try_out(view, _proof(number, who["queue"], subscription))
    return ProvenLease(
        **who,
        lease=number,
        messages=ledger.removed_counts[Removal.ACKNOWLEDGED] - acknowledged,
        is_barrier=lease is not None and lease.is_barrier and bool(lease.rows & (barriers - subscription.barriers)),
        was_proven=False,
    )


def _proof(lease: int, queue: str, subscription: Subscription) -> Prove:
    return Prove(queue=queue, subscription=subscription.name, run=Run(incarnation=subscription.incarnation, lease=lease))


def _newest_committed(checkpoint: Store) -> int | None:
    """Return the number of the newest committed batch of a query; None where there is none, as before its first start."""
    with checkpoint.failures("listing commits"):
        if checkpoint.is_local and not Path(checkpoint.path).exists():
            return None
    numbers = (int(match[1]) for each in checkpoint.list("commits") if (match := _NUMBER.fullmatch(each.key)))
    return max(numbers, default=None)


def _offsets_of(checkpoint: Store, batch: int) -> Iterator[dict[str, Any]]:
    """Yield the offsets of queue streams at which a batch ends."""
    text = checkpoint.read(f"offsets/{batch}")
    for line in () if text is None else text.decode(errors="replace").splitlines():
        yield from _offsets_in(line)


def _offsets_in(value: Any) -> Iterator[dict[str, Any]]:
    """Find offsets of queue streams in Spark's offsets of all sources, whose form depends on its version."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
    if isinstance(value, dict):
        if {"journal", "queue", "subscription", "lease"} <= value.keys() and type(value["lease"]) is int:
            yield value
        else:
            for each in value.values():
                yield from _offsets_in(each)
