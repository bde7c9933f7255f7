"""The verbs that say something of an instance: what was lost, restored, replaced, or is gone."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_queue.cli.arguments import Coordinator, JournalPath, Json, StorageOptions, open_target
from spark_queue.cli.output import show

PeerName = Annotated[str, typer.Argument(metavar="PEER", help="Name of the peer's instance.")]


def restored(
    journal: JournalPath,
    *,
    after: Annotated[
        int | None,
        typer.Option(metavar="RECORD", help="Where nothing else tells: the record that PEER_RESTORED names."),
    ] = None,
    coordinator: Coordinator = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Say that a journal was put back from a backup: what enters it is new, and what it lost comes back from its peers."""
    open_target(journal, storage, coordinator).restored(after=after)
    text = "What enters from now on has a new origin. What was lost comes back from the peers before anything is granted."
    show({"restored": True}, text, as_json=json)


def reset(
    journal: JournalPath, peer: PeerName, *, coordinator: Coordinator = None, storage: StorageOptions = None, json: Json = False
) -> None:
    """Read the journal that a peer has now from its beginning (PEER_REPLACED)."""
    open_target(journal, storage, coordinator).peer(peer).reset()
    text = f"Peer '{peer}' is read from the beginning of the journal that it has now."
    show({"peer": peer, "reset": True}, text, as_json=json)


def skip(
    journal: JournalPath, peer: PeerName, *, coordinator: Coordinator = None, storage: StorageOptions = None, json: Json = False
) -> None:
    """Go on with a peer without the messages that it let go before they were pulled (PEER_GAP)."""
    open_target(journal, storage, coordinator).peer(peer).skip_lost()
    text = f"Peer '{peer}' is pulled on, without the messages that it let go before they were pulled."
    show({"peer": peer, "skipped": True}, text, as_json=json)
