"""How far this journal is behind a peer: what of the peer's log is still to be taken over."""

from __future__ import annotations

from spark_queue.core.definitions.definition import PeerDefinition
from spark_queue.core.records import Record
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import SparkQueueError
from spark_queue.journal.layout import Store
from spark_queue.replication.peer_log import scan
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.puller import SILENT_KINDS


def records_behind(store: Store, peer: PeerDefinition, watermark: Watermark | None) -> tuple[list[Record], str | None]:
    """Return the records of a peer that are to be taken over, and why its log cannot be read, if so.

    Parameters
    ----------
    store : Store
        The own journal's place.
    """
    try:
        records = list(scan(peer_store(store, peer), peer.name, None, first=0 if watermark is None else watermark.record + 1))
    except SparkQueueError as trouble:
        return [], str(trouble)
    return [record for record in records if record.kind not in SILENT_KINDS], None
