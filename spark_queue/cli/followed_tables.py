"""Findings of doctor about the tables that message types follow: rights, features, statistics, and how long removed files stay."""

from __future__ import annotations

from collections.abc import Iterator

from spark_queue.cli.store_rights import Finding
from spark_queue.client.journal import Journal
from spark_queue.core.definitions.definition import Definitions, MessageTypeDefinition
from spark_queue.errors import SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.journal.table_look import inspect
from spark_queue.views.quantities import duration

#: How many times as long as a batch may take a table has to keep a file that it has removed.
BATCHES_KEPT = 3


def try_tables(journal: Journal) -> Finding:
    """Read each table as a coordinator does, and judge how it is written."""
    definitions = journal.definitions()
    followed = [each for each in definitions.message_types.values() if each.table is not None]
    if not followed:
        return Finding(result="ok", found="none is followed")
    failed, advice = list[str](), list[str]()
    for message_type in followed:
        try:
            advice += _advice(journal.store, definitions, message_type)
        except SparkQueueError as refusal:
            failed.append(message_type.name)
            advice.append(
                f"Message type '{message_type.name}': {refusal} Whoever follows a table needs to list and to read it; where "
                "listing is not allowed, an object store says that what is missing is forbidden."
            )
    if failed:
        return Finding(result="failed", found=f"cannot be read: that of {', '.join(failed)}", advice=" ".join(advice))
    found = f"{len(followed):,} can be listed and read"
    return Finding(result="warning" if advice else "ok", found=found, advice=" ".join(advice))


def _advice(store: Store, definitions: Definitions, message_type: MessageTypeDefinition) -> Iterator[str]:
    """Yield what should be changed about a table that a message type follows."""
    found = inspect(store, message_type)
    if found.uncounted:
        yield (
            f"Table '{found.table}': {found.uncounted:,} of the {found.added:,} files that were added last have no count of "
            "their rows (numRecords), so each is opened for it. Let its writer collect statistics."
        )
    limits = [each.lease_renewal_limit_ms for each in definitions.queues.values() if each.message_type == message_type.name]
    needed_ms = BATCHES_KEPT * max(limits, default=0)
    if found.retention_ms < needed_ms:
        yield (
            f"Table '{found.table}' keeps a file that was removed from it for {duration(found.retention_ms / 1_000)}, and a batch "
            f"may read one for up to {duration(max(limits) / 1_000)} (lease_renewal_limit): VACUUM may take it away meanwhile. "
            f"Set delta.deletedFileRetentionDuration to {duration(needed_ms / 1_000)} at least."
        )
