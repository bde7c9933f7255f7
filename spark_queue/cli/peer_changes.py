"""The verbs that say something of an instance: what was lost, restored, replaced, or is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from spark_queue.cli.arguments import Coordinator, JournalPath, Json, StorageOptions, TokenFile, open_target
from spark_queue.cli.output import progress, show

PeerName = Annotated[str, typer.Argument(metavar="PEER", help="Name of the peer's instance.")]


def restored(
    journal: JournalPath,
    *,
    after: Annotated[
        int | None,
        typer.Option(metavar="RECORD", help="If nothing else tells it: the record that PEER_RESTORED names."),
    ] = None,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Say that a journal was put back from a backup: what enters it is new, and what it lost comes back from its peers."""
    open_target(journal, storage, coordinator, token_file).restored(after=after)
    text = "What enters from now on has a new origin. What was lost comes back from the peers before anything is granted."
    show({"restored": True}, text, as_json=json)


def reset(
    journal: JournalPath,
    peer: PeerName,
    *,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Read the journal that a peer has now from its beginning (PEER_REPLACED)."""
    open_target(journal, storage, coordinator, token_file).peer(peer).reset()
    text = f"Peer '{peer}' is read from the beginning of the journal that it has now."
    show({"peer": peer, "reset": True}, text, as_json=json)


def skip(
    journal: JournalPath,
    peer: PeerName,
    *,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Go on with a peer without the messages that it let go before they were pulled (PEER_GAP)."""
    open_target(journal, storage, coordinator, token_file).peer(peer).skip_lost()
    text = f"Peer '{peer}' is pulled on, without the messages that it let go before they were pulled."
    show({"peer": peer, "skipped": True}, text, as_json=json)


def forget(
    journal: JournalPath,
    peer: PeerName,
    *,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """End a peer that is gone for good: what it owned is claimed. What it had delivered may be delivered again."""
    done = open_target(journal, storage, coordinator, token_file).peer(peer).forget()
    text = f"Peer '{peer}' is forgotten: {done.claimed:,} messages that it owned are this instance's now."
    for queue, count in done.left.items():
        text += (
            f" {count:,} of queue '{queue}' are not, since it delivers at most once and what was delivered is not known: let it"
            " deliver at least once and repeat this, if they may come again."
        )
    show({"peer": peer, "claimed": done.claimed, "left": done.left}, text, as_json=json)


def drain(
    journal: JournalPath,
    peer: PeerName,
    *,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Hand what this instance owns to a peer, before it leaves for good. Ctrl-C ends it; a repeat goes on with the rest."""
    target = open_target(journal, storage, coordinator, token_file).peer(peer)
    with progress(counted=True) as bar:
        task = bar.add_task("handed over", total=None)

        def on_progress(count: int, left: Mapping[str, int]) -> None:
            bar.update(task, completed=count, total=count + sum(left.values()))

        transferred = target.drain(on_progress=on_progress)
    text = f"{transferred:,} messages were handed to '{peer}', which has heard of all of them. Nothing is owned here."
    show({"peer": peer, "transferred": transferred}, text, as_json=json)
