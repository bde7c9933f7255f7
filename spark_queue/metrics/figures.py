"""Figures of a journal's state at one moment, as values that another thread may read: a fold makes them, once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_history import QueueHistory
from spark_queue.core.state.ownership import Watermark
from spark_queue.protocol import wire
from spark_queue.protocol.discovery import Heard, seen_at_ms
from spark_queue.views.journal_view import NeededFiles

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Observe:
    """The question for the `JournalFigures` of a reign."""

    #: Damage of the message files that a queue's consumers need next, by its name, as far as they were looked at.
    damages: Mapping[str, str] = field(default_factory=dict)
    #: The newest version of the table that its message type follows, by queue, as far as it was looked at.
    heads: Mapping[str, int | None] = field(default_factory=dict)
    #: The queue with the files to be looked at next.
    looks_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFigures:
    """One subscription."""

    subscription: str
    backlog: int
    alarm: bool
    last_seen_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigures:
    """One peer, as the own log has it."""

    watermark: Watermark | None
    remote: int
    requested: int
    transferred_in: int
    transferred_out: int
    disagreements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFigures:
    """A journal at one moment."""

    journal_id: str
    definitions: Definitions
    now_ms: int
    records: int
    epoch: int
    statuses: Sequence[QueueStatus]
    #: Queues with unreadable messages.
    set_aside: Sequence[str]
    #: By queue.
    subscriptions: Mapping[str, Sequence[SubscriptionFigures]]
    peers: Mapping[str, PeerFigures]
    #: Facts of each peer that only a running coordinator knows.
    told: Mapping[str, wire.PeerTold] = field(default_factory=dict)
    #: The history of the log, by queue; None while the log is still being read.
    history: Mapping[str, QueueHistory] | None = None
    #: The files to look at, of the queue that was named.
    needed: NeededFiles | None = None


def figures_of(
    state: JournalState,
    status: Callable[[str], QueueStatus],
    *,
    now_ms: int,
    told: Mapping[str, wire.PeerTold] | None = None,
) -> JournalFigures:
    """Return the figures of a journal; their cost follows leases and bitmaps, as that of `queue_status` does.

    A queue for which `status` raises is shown like one that is set aside.
    """
    statuses, subscriptions = dict[str, QueueStatus](), dict[str, list[SubscriptionFigures]]()
    untold = list(state.set_aside_queues())
    for queue in state.queues:
        try:
            statuses[queue], subscriptions[queue] = status(queue), _subscriptions(state, queue)
        except Exception:  # noqa: BLE001  # The others have their figures all the same.
            _LOG.exception("The figures of queue '%s' cannot be computed.", queue)
            untold.append(queue)
    peers = dict[str, PeerFigures]()
    for peer in state.definitions.peers:
        try:
            peers[peer] = peer_figures(state, peer, now_ms=now_ms)
        except Exception:  # noqa: BLE001  # As above.
            _LOG.exception("The figures of peer '%s' cannot be computed.", peer)
    return JournalFigures(
        journal_id=state.journal_id,
        definitions=state.definitions,
        now_ms=now_ms,
        records=state.next_record,
        epoch=state.epoch,
        statuses=list(statuses.values()),
        set_aside=untold,
        subscriptions=subscriptions,
        peers=peers,
        told=told or {},
    )


def with_heard(found: JournalFigures, heard: Heard) -> JournalFigures:
    """Return figures that also know when planners called last which found nothing, as the coordinator says."""
    return replace(
        found,
        subscriptions={
            queue: [
                replace(
                    each,
                    last_seen_at_s=seen_at_ms(
                        round(each.last_seen_at_s * 1_000), heard, queue=queue, subscription=each.subscription, now_ms=found.now_ms
                    )
                    / 1_000,
                )
                for each in figures
            ]
            for queue, figures in found.subscriptions.items()
        },
    )


def _subscriptions(state: JournalState, queue: str) -> list[SubscriptionFigures]:
    ledger = state.queues[queue]
    backlogs = ledger.backlogs()
    return [
        SubscriptionFigures(
            subscription=each.name, backlog=backlogs[each.name], alarm=each.alarm is not None,
            last_seen_at_s=each.last_seen_at_ms / 1_000,
        )
        for each in ledger.subscriptions.values()
    ]  # fmt: skip


def peer_figures(state: JournalState, peer: str, *, now_ms: int) -> PeerFigures:
    """Return the figures of a peer, as metrics and `PeerStatus` show them."""
    queues = [ledger.ownership for ledger in state.queues.values()]
    requests = [each.requests[peer] for each in queues if peer in each.requests]
    return PeerFigures(
        watermark=state.pulled.get(peer),
        remote=sum(len(rows) for each in queues for rows in each.of_others(each.remote, {peer}).values()),
        requested=sum(each.limit for each in requests if now_ms < each.at_ms + OPEN_MS),
        transferred_in=sum(each.came_from[peer] for each in queues),
        transferred_out=sum(each.given_to[peer] for each in queues),
        disagreements=len(state.disagreements.get(peer, ())),
    )
