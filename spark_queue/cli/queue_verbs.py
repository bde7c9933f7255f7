"""The verbs that change one queue."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_queue.cli.arguments import DryRun, OnlyWhere, QueueName, parse_since
from spark_queue.cli.output import draw, progress, say, show_json, table
from spark_queue.cli.verb import OF_COORDINATOR, OF_STORE, VerbTarget, verb
from spark_queue.core.records import Outcome
from spark_queue.settings.timestamps import to_text

if TYPE_CHECKING:
    import msgspec


@verb(OF_COORDINATOR)
def pause(target: VerbTarget, queue: QueueName) -> None:
    """Pause a queue: it grants nothing until `sparkq unpause`. Leased messages are not affected."""
    target.journal.queue(queue).pause()
    text = f"Queue '{queue}' is paused: it grants nothing until `sparkq unpause`. Leased messages are not affected."
    target.show({"queue": queue, "paused": True}, text)


@verb(OF_COORDINATOR)
def unpause(target: VerbTarget, queue: QueueName) -> None:
    """Let a paused queue grant again."""
    target.journal.queue(queue).unpause()
    target.show({"queue": queue, "paused": False}, f"Queue '{queue}' grants again.")


@verb(OF_COORDINATOR)
def revive(target: VerbTarget, queue: QueueName) -> None:
    """Revive a queue that was set aside, after an upgrade that fixes its fault. Nothing of it was lost meanwhile."""
    target.journal.queue(queue).revive()
    target.show({"queue": queue, "set_aside": False}, f"Queue '{queue}' is back, with everything published meanwhile.")


Reason = Annotated[
    str | None, typer.Option(metavar="REASON", help="Only those of this reason: forced_expire, max_deliveries, max_cancels, lost.")
]
ErrorPart = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Only those whose error contains this text.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help=("Only those that died at this time or later: a date (UTC), or a time with offset.")),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only those that died before this time.")]


class Switch(StrEnum):
    """The parts that may be switched."""

    ON = "on"
    OFF = "off"


@verb(OF_COORDINATOR)
def proxied_transfer(
    target: VerbTarget,
    queue: QueueName,
    switch: Annotated[Switch, typer.Argument(metavar="on|off", help="Whether it is allowed; off by default.")],
    *,
    owner: Annotated[str | None, typer.Option(metavar="INSTANCE", help="The lost owner; needed with several peers.")] = None,
) -> None:
    """Let this instance claim messages whose owner cannot be reached. Those that it had delivered may be delivered again."""
    on = switch is Switch.ON
    target.journal.queue(queue).proxied_transfer(on=on, owner=owner)
    text = (
        f"Queue '{queue}': messages due for delivery are claimed from an owner that cannot be reached. If that owner had delivered "
        "them, or is still alive, they are delivered twice. Allow this on one instance only, and no longer than needed."
    )
    target.show({"queue": queue, "proxied_transfer_allowed": on}, text if on else f"Queue '{queue}': nothing is claimed.")


@verb(OF_COORDINATOR)
def unsubscribe(
    target: VerbTarget,
    queue: QueueName,
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")],
) -> None:
    """End a subscription for good; what it holds returns to the queue."""
    target.journal.queue(queue).unsubscribe(subscription)
    text = f"Subscription '{subscription}' of queue '{queue}' has ended; its messages are back in the queue."
    target.show({"queue": queue, "subscription": subscription}, text)


@verb(OF_COORDINATOR)
def settle(
    target: VerbTarget,
    queue: QueueName,
    *,
    where: Annotated[str, typer.Option(metavar="FILTER", help="Spark SQL over the message type's columns.")],
    outcome: Annotated[str, typer.Option(help="acknowledge, cancel or expire.")] = "acknowledge",
    retry_after: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help='With cancel: how long they wait, such as "30s"; default: the queue\'s delay.'),
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help=("With cancel and expire: the reason, which a dead letter keeps."))
    ] = None,
    of_owner: Annotated[
        bool, typer.Option("--of-owner", help="Also messages of another instance that is alive; it learns of it.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Give an outcome to every message that matches a filter, leased or not."""
    opened = target.journal.queue(queue)
    said: dict[str, Any] = {"outcome": outcome, "retry_after": retry_after, "error": error, "of_owner": of_owner}
    counts = _counts(opened.settle(where=where, dry_run=dry_run, **said))
    nothing = "nothing that matches is leased" if outcome == Outcome.CANCEL else "nothing matched"
    done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    text = f"Queue '{queue}': {'the result would be ' if dry_run and done else ''}{done or nothing}."
    text = f"{text} Nothing was changed." if dry_run else text
    target.show({"queue": queue, **_marked(counts, dry_run=dry_run)}, text)


@verb(OF_COORDINATOR)
def purge(
    target: VerbTarget,
    queue: QueueName,
    *,
    where: OnlyWhere = None,
    dry_run: DryRun = False,
) -> None:
    """Remove all messages that are not leased, for good and without dead letters."""
    done = target.journal.queue(queue).purge(where, dry_run=dry_run)
    if dry_run:
        text = f"Queue '{queue}': {done.purged:,} message(s) would be purged, {done.leased:,} are leased. Nothing was changed."
    else:
        text = f"Queue '{queue}': {done.purged:,} message(s) were purged, {done.leased:,} are leased and stay."
    target.show({"queue": queue, **_marked(_counts(done), dry_run=dry_run)}, text)


@verb(OF_COORDINATOR)
def redrive(
    target: VerbTarget,
    queue: QueueName,
    *,
    where: OnlyWhere = None,
    reason: Reason = None,
    error: ErrorPart = None,
    since: Since = None,
    until: Until = None,
    per_second: Annotated[int | None, typer.Option(metavar="N", help="Most messages each second; default: all at once.")] = None,
    dry_run: DryRun = False,
) -> None:
    """Give dead letters back to their queue, all or those of a kind or a time. Ctrl-C stops; repeat to continue."""
    opened = target.journal.queue(queue)
    choice = _choice(reason, error, since, until)
    if dry_run:
        would = opened.redrive(where, **choice, dry_run=True)
        text = f"Queue '{queue}': {would.redriven:,} of {would.requested:,} dead letter(s) would go back. Nothing was changed."
        target.show({"queue": queue, **_marked(_counts(would), dry_run=True)}, text)
        return
    with progress(counted=True) as bar:
        task = bar.add_task("redriven", total=None)
        done = opened.redrive(
            where, **choice, per_second=per_second, on_progress=lambda count, total: bar.update(task, completed=count, total=total)
        )
    text = f"Queue '{queue}': {done.redriven:,} of {done.requested:,} dead letter(s) are back, {done.skipped:,} were skipped."
    if done.skipped:
        text += " Those are leased or settled in the dead-letter queue, or belong to another instance, which can redrive them."
    target.show({"queue": queue, **_counts(done)}, text)


@verb(OF_STORE)
def dead_letters(
    target: VerbTarget,
    queue: QueueName,
    *,
    reason: Reason = None,
    error: ErrorPart = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Kinds to show.")] = 50,
) -> None:
    """Show a queue's dead letters by reason and error, newest first: what fails, how often, since when. Starts nothing."""
    kinds = target.journal.queue(queue).letter_kinds(**_choice(reason, error, since, until))
    rows = [
        {"reason": kind.reason, "error": kind.error, "letters": len(kind.rows), "last": to_text(kind.last_ms),
         "first": to_text(kind.first_ms), "oldest_bookmark": kind.rows.min()} for kind in kinds[:limit]
    ]  # fmt: skip
    if target.as_json:
        show_json(rows)
    elif rows:
        draw(table(rows, list(rows[0]), needed=("error", "letters"), figures=("letters",)))
        if len(kinds) > limit:
            more = sum(len(kind.rows) for kind in kinds[limit:])
            say(f"Older kinds not shown: {len(kinds) - limit:,}, of {more:,} letters. --limit {len(kinds)} shows all.")
        source = target.journal.definitions().source_of(queue)
        say(f"sparkq redrive {target.path} {source or queue} gives them back, and takes the same options; begin with --dry-run.")
        if source is not None:
            say(f"Those that died here again come back by sparkq redrive {target.path} {queue}.")
    else:
        say(f"Queue '{queue}' has no such dead letters.")


def _choice(reason: str | None, error: str | None, since: str | None, until: str | None) -> dict[str, Any]:
    return {"reason": reason, "error": error, "since": parse_since(since), "until": parse_since(until, name="--until")}


def _counts(done: msgspec.Struct) -> dict[str, Any]:
    from msgspec.structs import asdict

    return asdict(done)


def _marked(counts: dict[str, object], *, dry_run: bool) -> dict[str, object]:
    return {"dry_run": True, **counts} if dry_run else counts
