"""``sparkq peers``: the verbs about the instances that a journal pulls from.

With them the user reports that an instance was restored or replaced, has lost records, or is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_queue.cli.output import ALARM_EXIT_CODE, draw, progress, say, show_json, table
from spark_queue.cli.verb import OF_COORDINATOR, OF_STORE, VerbTarget, verb

if TYPE_CHECKING:
    from spark_queue.client.peer_checks import PeerCheck

PeerName = Annotated[str, typer.Argument(metavar="PEER", help="Name of the peer's instance.")]


@verb(OF_COORDINATOR)
def mark_restored(
    target: VerbTarget,
    *,
    after: Annotated[
        int | None,
        typer.Option(metavar="RECORD", help="The record that PEER_RESTORED names, if no sign of the loss is found otherwise."),
    ] = None,
) -> None:
    """Mark a journal as restored from a backup: what enters it is new, and what it lost comes back from its peers."""
    target.journal.mark_restored(after=after)
    text = "Messages that enter from now on have a new origin. Lost ones come back from the peers before anything is granted."
    target.show({"restored": True}, text)


@verb(OF_COORDINATOR)
def return_(
    target: VerbTarget,
    *,
    without: Annotated[str, typer.Option(metavar="PEER", help="The peer not to wait for; one at a time.")],
) -> None:
    """Let an instance that was away deliver again without hearing from a peer (RETURNING). What that peer claimed comes twice."""
    target.journal.peer(without).return_without()
    text = (
        f"This instance no longer waits for peer '{without}'. Messages that the peer claimed and delivered may be delivered again."
    )
    target.show({"peer": without, "waited_for": False}, text)


@verb(OF_COORDINATOR)
def reset(target: VerbTarget, peer: PeerName) -> None:
    """Read a peer's new journal from its beginning (PEER_REPLACED)."""
    target.journal.peer(peer).reset()
    text = f"Peer '{peer}' is read from the beginning of its new journal."
    target.show({"peer": peer, "reset": True}, text)


@verb(OF_COORDINATOR)
def skip(target: VerbTarget, peer: PeerName) -> None:
    """Resume pulling from a peer without the messages that it removed before they were pulled (PEER_GAP)."""
    target.journal.peer(peer).skip_lost()
    text = f"Pulling from peer '{peer}' resumes without the messages that it removed before they were pulled."
    target.show({"peer": peer, "skipped": True}, text)


@verb(OF_COORDINATOR)
def forget(target: VerbTarget, peer: PeerName) -> None:
    """Forget a peer that is gone for good, and claim its messages. Those that it had delivered may be delivered again."""
    done = target.journal.peer(peer).forget()
    text = f"Peer '{peer}' is forgotten: this instance now owns {done.claimed:,} message(s) of it."
    for queue, count in done.left.items():
        text += (
            f" Left: {count:,} of queue '{queue}', since it delivers at most once and it is unknown which were delivered. If these "
            "may come again, make the queue at-least-once and repeat this."
        )
    target.show({"peer": peer, "claimed": done.claimed, "left": done.left}, text)


@verb(OF_COORDINATOR)
def drain(target: VerbTarget, peer: PeerName) -> None:
    """Hand this instance's messages to a peer, before it leaves for good. Ctrl-C stops; repeat to continue."""
    opened = target.journal.peer(peer)
    with progress(counted=True) as bar:
        task = bar.add_task("handed over", total=None)

        def on_progress(count: int, left: Mapping[str, int]) -> None:
            bar.update(task, completed=count, total=count + sum(left.values()))

        transferred = opened.drain(on_progress=on_progress)
    text = f"{transferred:,} message(s) were handed to '{peer}', which has received all of them. Nothing is owned here any more."
    target.show({"peer": peer, "transferred": transferred}, text)


group = typer.Typer(name="peers", no_args_is_help=True, help="Look after the instances that a journal pulls from.")

#: Columns of a peer for people; the rest is in --json.
_COLUMNS = (
    "peer", "reachable", "silent_seconds", "records_behind", "seconds_behind", "rows_copied", "bytes_copied", "remote", "requested",
    "transferred_in", "transferred_out",
)  # fmt: skip


@verb(OF_STORE)
def check(target: VerbTarget) -> None:
    """Check whether the definitions of all instances fit each other. Starts nothing. Exits with 3 if they do not."""
    done = target.journal.check_peers()
    if target.as_json:
        show_json(asdict(done))
    else:
        draw(table(_rows(done), ("rule", "asks_for", "broken_by"), cut=False))
        say(f"Read: {', '.join(done.read)}.")
        for instance, reason in done.unread.items():
            say(f"Not read: {instance}. {reason}")
    if not done.fits:
        raise SystemExit(ALARM_EXIT_CODE)


@verb(OF_COORDINATOR)
def status(target: VerbTarget) -> None:
    """Show the state of pulling from each peer. Starts nothing. Exits with 3 if something needs attention."""
    found = target.journal.peer_status()
    if target.as_json:
        show_json([asdict(each) for each in found])
    else:
        draw(table([asdict(each) for each in found], _COLUMNS, needed=_COLUMNS[:4], figures=_COLUMNS))
        for each in found:
            for reason in [*([] if each.trouble is None else [each.trouble]), *each.disagreements]:
                say(f"{each.peer}: {reason}")
    if any(each.trouble or each.disagreements or each.reachable is False for each in found):
        raise SystemExit(ALARM_EXIT_CODE)


def _rows(done: PeerCheck) -> list[dict[str, Any]]:
    """Return a row for each rule, and one for each time that it is broken."""
    rows = []
    for rule, text in done.rules.items():
        broken = [f"{each.queue}, {each.instance} from {each.peer}: {each.reason}" for each in done.broken if each.rule == rule]
        rows += [{"rule": rule, "asks_for": text, "broken_by": each} for each in broken or ["nothing"]]
    return rows


for each in (check, status, drain, forget, skip, reset):
    group.command()(each)
