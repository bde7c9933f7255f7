"""The commit of a write: what tasks staged becomes one publish."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.errors import CallerError, ConfigError, SparkQueueError
from spark_queue.journal.layout import messages_key
from spark_queue.journal.publisher import Identity, commit_staged
from spark_queue.journal.reader import open_reader
from spark_queue.journal.staging import StagedFile
from spark_queue.source.stream_writer import Staged, WriteJob

_log = logging.getLogger(__name__)


def commit(job: WriteJob, messages: Sequence[object], *, transaction: tuple[str, int] | None, exclusive: bool) -> None:
    """Publish what was staged, in order and in one commit.

    Parameters
    ----------
    job
        What the write is.
    messages
        What the tasks staged, in the order of the DataFrame's partitions.
    transaction
        How the write is told from its repeat, beside the publisher's sequences.
    exclusive
        Whether the publisher's name belongs to the newest that uses it (R98); a stream's checkpoint is identity enough.

    Raises
    ------
    CallerError, ConfigError, JournalError
        As `journal.publisher.commit_staged`; nothing was published.
    """
    staged = _staged(messages)
    if not staged:
        return
    plan = job.plans[staged[0][0]]
    definitions = open_reader(plan.store).definitions()
    identity = Identity(publisher=job.publisher, exclusive=exclusive and job.publisher is not None, transaction=transaction)
    # Rows of another type stand in another folder; the topics that they carry are refused by name here.
    files = [file for _, file in staged]
    try:
        published = commit_staged(plan, job.journal_id, definitions, files, identity=identity)
    except (CallerError, ConfigError):
        # Only these say that nothing was published; after a failure of the store the log may name the files.
        _discard(job, staged)
        raise
    if published.duplicates:
        _log.warning("%d row(s) were published before and are dropped", published.duplicates)
    if published.rows:
        CoordinatorClient(plan.store, job.journal_id, endpoint=job.endpoint, start=False).nudge(plan.message_type)
    else:
        _discard(job, staged)


def abort(job: WriteJob, messages: Sequence[object]) -> None:
    """Delete what was staged for a write whose commit was never tried.

    Spark aborts after a failed commit too, and a commit whose reply was lost may be in the log: its files must stay. A commit
    is tried once every task has sent its message, so a missing one says that there was none.
    """
    if any(message is None for message in messages):
        _discard(job, _staged(messages))


def _staged(messages: Sequence[object]) -> list[tuple[str, StagedFile]]:
    """Return the files that tasks staged, each with its message type; a failed task has no message, one without rows no file."""
    return [(str(each.message_type), each.file) for each in messages if isinstance(each, Staged) and each.file is not None]


def _discard(job: WriteJob, staged: Sequence[tuple[str, StagedFile]]) -> None:
    """Delete staged files that no commit names; what is left of them in spite of it is a leftover that nobody sees."""
    for message_type, file in staged:
        try:
            job.plans[message_type].store.delete([f"{messages_key(message_type)}/{file.path}"])
        except SparkQueueError as reason:
            _log.info("a staged file was not deleted: %s", reason)
