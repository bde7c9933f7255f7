"""Where the journals of peers are (DESIGN 17.2)."""

from __future__ import annotations

from spark_queue.core.definitions.definition import PeerDefinition
from spark_queue.journal.store import Store
from spark_queue.journal.stores_file import options_of


def peer_store(own: Store, peer: PeerDefinition) -> Store:
    """Return where a peer's journal is, with the options to reach it: those of the own journal where the file says none."""
    path = Store(peer.journal).path
    options = options_of(path)
    return Store(path, own.storage_options if options is None else options)
