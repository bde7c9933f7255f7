"""The verbs that say something of an instance: what was lost, restored, replaced, or is gone."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_queue.cli.arguments import Coordinator, JournalPath, Json, StorageOptions, open_target
from spark_queue.cli.output import show

PeerName = Annotated[str, typer.Argument(metavar="PEER", help="Name of the peer's instance.")]


def skip(
    journal: JournalPath, peer: PeerName, *, coordinator: Coordinator = None, storage: StorageOptions = None, json: Json = False
) -> None:
    """Go on with a peer without the messages that it let go before they were pulled (PEER_GAP)."""
    open_target(journal, storage, coordinator).peer(peer).skip_lost()
    text = f"Peer '{peer}' is pulled on, without the messages that it let go before they were pulled."
    show({"peer": peer, "skipped": True}, text, as_json=json)
