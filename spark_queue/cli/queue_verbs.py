"""The verbs that change one queue, and their arguments; their bodies import what they need, as those in `app`."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_queue.cli.arguments import Coordinator, JournalPath, Json, OnlyWhere, QueueName, StorageOptions

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do; starts and changes nothing.")]


def pause(
    journal: JournalPath, queue: QueueName, *, coordinator: Coordinator = None, storage: StorageOptions = None, json: Json = False
) -> None:
    """Let a queue grant nothing until `sparkq unpause`. What is leased goes on."""
    from spark_queue.cli import changing as verb

    verb.pause(journal, queue, storage, coordinator, as_json=json)


def unpause(
    journal: JournalPath, queue: QueueName, *, coordinator: Coordinator = None, storage: StorageOptions = None, json: Json = False
) -> None:
    """Let a paused queue grant again."""
    from spark_queue.cli import changing as verb

    verb.unpause(journal, queue, storage, coordinator, as_json=json)


def unsubscribe(
    journal: JournalPath,
    queue: QueueName,
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")],
    *,
    coordinator: Coordinator = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """End a subscription for good; what it holds returns to the queue."""
    from spark_queue.cli import changing as verb

    verb.unsubscribe(journal, queue, subscription, storage, coordinator, as_json=json)


def settle(
    journal: JournalPath,
    queue: QueueName,
    *,
    where: Annotated[str, typer.Option(metavar="FILTER", help="Spark SQL over the message type's columns.")],
    outcome: Annotated[str, typer.Option(help="acknowledge, cancel or expire.")] = "acknowledge",
    retry_after: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help='With cancel: how long they wait, such as "30s"; default: as the queue says.'),
    ] = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="With cancel and expire: why; a dead letter keeps it.")] = None,
    dry_run: DryRun = False,
    coordinator: Coordinator = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Give an outcome to every message that matches a filter, leased or not."""
    from spark_queue.cli import changing as verb

    said = verb.Said(outcome=outcome, retry_after=retry_after, error=error)
    verb.settle(journal, queue, storage, coordinator, where=where, said=said, dry_run=dry_run, as_json=json)


def purge(
    journal: JournalPath,
    queue: QueueName,
    *,
    where: OnlyWhere = None,
    dry_run: DryRun = False,
    coordinator: Coordinator = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Remove the messages that nobody has leased, for good and without dead letters."""
    from spark_queue.cli import changing as verb

    verb.purge(journal, queue, storage, coordinator, where=where, dry_run=dry_run, as_json=json)


def redrive(
    journal: JournalPath,
    queue: QueueName,
    *,
    where: OnlyWhere = None,
    per_second: Annotated[int | None, typer.Option(metavar="N", help="Most messages each second; default: all at once.")] = None,
    coordinator: Coordinator = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Give dead letters back to their queue. Ctrl-C ends it; a repeat goes on with the rest."""
    from spark_queue.cli import changing as verb

    verb.redrive(journal, queue, storage, coordinator, where=where, per_second=per_second, as_json=json)
