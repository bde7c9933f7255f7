"""How far this journal is behind a peer: what of the peer's log is still to be taken over."""

from __future__ import annotations

from spark_queue.core.definitions.definition import PeerDefinition
from spark_queue.core.state.ownership import Watermark
from spark_queue.journal.layout import Store
from spark_queue.replication.peer_log import scan
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.puller import SILENT_KINDS


def lag_of(store: Store, peer: PeerDefinition, watermark: Watermark | None, *, now_ms: int) -> tuple[int, float]:
    """Return how many records of a peer are to be taken over, and how long the first of them has waited, in seconds.

    Parameters
    ----------
    store : Store
        The own journal's place.

    Raises
    ------
    SparkQueueError
        What keeps the peer's log from being read.
    """
    count, since_ms = 0, now_ms
    for record in scan(peer_store(store, peer), peer.name, None, first=0 if watermark is None else watermark.record + 1):
        if record.kind not in SILENT_KINDS:
            count, since_ms = count + 1, since_ms if count else record.at_ms
    return count, max(0, now_ms - since_ms) / 1_000
