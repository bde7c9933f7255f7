"""The peers of a journal, for its operators: the state of pulling from each (DESIGN 17.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_queue.client import coordinator_client
from spark_queue.core.definitions.definition import PeerDefinition
from spark_queue.errors import ConfigError, CoordinatorError, SparkQueueError
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store
from spark_queue.metrics.figures import peer_figures
from spark_queue.protocol import wire
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.replication.restored import lag_of
from spark_queue.views import JournalView, state_at

_NONE_RUNS = "no coordinator of this journal runs, so nothing is pulled: keep `sparkq serve` running."

#: How long a coordinator may take to answer, in seconds.
_ASK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """The state of pulling from one peer."""

    #: Its instance, and the path of its journal.
    peer: str
    journal: str
    #: Whether it counts as reachable, and for how long it has been silent, in seconds; None where no coordinator runs.
    reachable: bool | None
    silent_seconds: float | None
    #: Records of its log that mean something here and are not taken over, and the age of the first; None where it cannot be read.
    records_behind: int | None
    seconds_behind: float | None
    #: Messages copied from it since the coordinator began, or had new definitions; None where none runs.
    rows_copied: int | None
    bytes_copied: int | None
    #: Messages that it owns of queues here, that it was asked for just now, that came from it, and that it was given.
    remote: int
    requested: int
    transferred_in: int
    transferred_out: int
    #: Broken rules between its definitions and those of here.
    disagreements: list[str]
    #: The trouble that keeps it from being pulled.
    trouble: str | None


def peer_status(store: Store, endpoint: Endpoint) -> list[PeerStatus]:
    """Return the state of pulling from each peer: from the logs, and from the coordinator that runs, if one does.

    Raises
    ------
    ConfigError
        NO_PEERS.
    SparkQueueError
        Where the journal itself cannot be read.
    """
    now = state_at(open_journal(store))
    definitions = now.state.definitions
    if not definitions.peers:
        raise ConfigError("NO_PEERS", path=store.path)
    told = _told(store, now.state.journal_id, endpoint)
    return [_status_of(store, now, peer, told) for peer in definitions.peers.values()]


def _told(store: Store, journal_id: str, endpoint: Endpoint) -> Mapping[str, wire.PeerTold] | None:
    """Return the coordinator's figures of pulling, by peer; None where none runs."""
    try:
        reply = coordinator_client.call_once(store, journal_id, wire.AskPeers(), endpoint=endpoint, start=False, timeout_s=_ASK_S)
    except CoordinatorError as refusal:
        # An address is the user's word that one runs there.
        if endpoint.addresses is not None or refusal.code != "COORDINATOR_UNAVAILABLE":
            raise
        return None
    assert isinstance(reply, wire.PeersTold), "it is answered with what it asks for"
    return reply.peers


def _status_of(store: Store, now: JournalView, peer: PeerDefinition, told: Mapping[str, wire.PeerTold] | None) -> PeerStatus:
    state, name = now.state, peer.name
    known = None if told is None else told.get(name)
    found = peer_figures(state, name, now_ms=now.now_ms)
    records, seconds, unread = None, None, None
    try:
        records, seconds = lag_of(store, peer, state.pulled.get(name), now_ms=now.now_ms)
    except SparkQueueError as trouble:
        unread = str(trouble)
    return PeerStatus(
        peer=name,
        journal=peer.journal,
        reachable=None if known is None else known.silent_ms < state.definitions.replication.unreachable_after_ms,
        silent_seconds=None if known is None else known.silent_ms / 1_000,
        records_behind=records,
        seconds_behind=seconds if records else None,
        rows_copied=None if known is None else known.rows_copied,
        bytes_copied=None if known is None else known.bytes_copied,
        remote=found.remote,
        requested=found.requested,
        transferred_in=found.transferred_in,
        transferred_out=found.transferred_out,
        disagreements=[f"{each.rule}, {each.queue}: {each.reason}" for each in state.disagreements.get(name, ())],
        trouble=_NONE_RUNS if told is None else (None if known is None else known.trouble) or unread,
    )
