"""Proofs from a checkpoint: a batch that Spark has committed, and whose query told nobody (R49).

A query that reads until nothing is left ends with the commit of its last batch, and its planner makes no further call. A
listener tells of that commit where Spark lets one listen; if the driver died first, only the checkpoint still knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spark_queue.client.coordinator_client import call_once
from spark_queue.core.commands import Prove
from spark_queue.core.replies import Run
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import LeaseError
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store
from spark_queue.protocol.connection import Endpoint
from spark_queue.views import state_at

_NUMBER = re.compile(r"(?:.*/)?(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenLease:
    """A lease whose batch a checkpoint shows to be committed."""

    queue: str
    subscription: str
    lease: int
    #: Messages that the proof acknowledged; 0 where it was proven before.
    messages: int


def prove(store: Store, endpoint: Endpoint, checkpoint: Store) -> list[ProvenLease]:
    """Say of each queue stream of a query that its newest committed batch is proven.

    Raises
    ------
    LeaseError
        CHECKPOINT_FOREIGN where the checkpoint knows no committed batch of a queue of this journal, or one that the journal never
        granted; STALE_RUN where a newer reader took over just now.
    """
    view = state_at(open_journal(store))
    told = [offset for offset in _committed(checkpoint) if offset["journal"] == view.state.journal_id]
    if not told:
        expected = f"a committed batch of a queue of journal {view.state.journal_id}"
        raise LeaseError("CHECKPOINT_FOREIGN", what="nothing", expected=expected)
    found = [_proven(view.state, offset) for offset in told]
    for each in found:
        if each.messages:
            subscription = view.state.ledger(each.queue).subscriptions[each.subscription]
            run = Run(incarnation=subscription.incarnation, lease=each.lease)
            call_once(
                store, view.state.journal_id, Prove(queue=each.queue, subscription=each.subscription, run=run), endpoint=endpoint
            )
    return found


def _proven(state: JournalState, offset: Mapping[str, Any]) -> ProvenLease:
    """Return what there is to prove."""
    who = {"queue": str(offset["queue"]), "subscription": str(offset["subscription"])}
    ledger, number = state.ledger(who["queue"]), int(offset["lease"])
    subscription = ledger.subscriptions.get(who["subscription"])
    newest = 0 if subscription is None else subscription.lease
    if number > newest:
        expected = f"one that queue '{who['queue']}' has granted to subscription '{who['subscription']}', whose newest is {newest}"
        raise LeaseError("CHECKPOINT_FOREIGN", what=f"lease {number}", expected=expected)
    lease = ledger.leases.get(number)
    is_open = lease is not None and not lease.proven
    return ProvenLease(**who, lease=number, messages=len(ledger.outstanding(lease)) if lease is not None and is_open else 0)


def _committed(checkpoint: Store) -> Iterator[dict[str, Any]]:
    """Yield the offsets of queue streams at which the newest committed batch of a query ends."""
    numbers = [int(match[1]) for each in checkpoint.list("commits") if (match := _NUMBER.fullmatch(each.key))]
    text = checkpoint.read(f"offsets/{max(numbers)}") if numbers else None
    for line in () if text is None else text.decode(errors="replace").splitlines():
        yield from _offsets_in(line)


def _offsets_in(value: Any) -> Iterator[dict[str, Any]]:
    """Find offsets of queue streams in what Spark has stored of all sources, whose form depends on its version."""
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
