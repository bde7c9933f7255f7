"""The verbs that change one queue, and their arguments; their bodies import what they need, as those in `app`."""

from __future__ import annotations

from spark_queue.cli.arguments import Coordinator, JournalPath, Json, QueueName, StorageOptions


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
