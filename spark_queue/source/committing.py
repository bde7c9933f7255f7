"""The commit of a write: the files that tasks staged become one publish."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.errors import CallerError, ConfigError, SparkQueueError
from spark_queue.journal.commit import KEPT_TXN, OFFSETS_TXN, ROWS_TXN, STREAM_TXN, USER_TXN, Transaction, transaction_name
from spark_queue.journal.fingerprint import fingerprint, fingerprints_of_rows
from spark_queue.journal.publisher import Identity, commit_staged
from spark_queue.journal.reader import open_with_definitions
from spark_queue.journal.staging import StagedFile
from spark_queue.journal.store import Store, messages_key
from spark_queue.source.write_job import Staged, WriteJob

_log = logging.getLogger(__name__)


def commit(job: WriteJob, messages: Sequence[object], *, batch: int | None = None) -> None:
    """Publish the staged files, in the order of the DataFrame's partitions and in one commit; `batch` is a micro-batch's."""
    staged = _staged(messages)
    if not staged:
        return
    plan = job.plans[staged[0][0]]
    _, (_, definitions) = open_with_definitions(plan.store)
    # Rows of another type stand in another folder; the topics that they carry are refused by name here.
    files = [file for _, file in staged]
    try:
        # A stream's checkpoint is identity enough: its publisher's name belongs to nobody (R98).
        transaction = _of_user(job, files) if batch is None else _of_stream(job, messages, files, batch)
        identity = Identity(publisher=job.publisher, exclusive=batch is None and job.publisher is not None, transaction=transaction)
        published = commit_staged(plan, job.journal_id, definitions, files, identity=identity)
    except (CallerError, ConfigError):
        # Only these say that nothing was published; after a failure of the store the log may name the files.
        _discard(job, staged)
        raise
    if published.duplicates:
        _log.warning("%d row(s) were published before and are dropped", published.duplicates)
    if published.rows:
        CoordinatorClient(plan.store, job.journal_id, endpoint=job.endpoint, start=False).nudge(
            plan.message_type, published.version
        )
    else:
        _discard(job, staged)


def _of_user(job: WriteJob, files: Sequence[StagedFile]) -> Transaction | None:
    """Return the transaction that the user has numbered."""
    if job.txn_app_id is None:
        return None
    name = transaction_name(USER_TXN, job.txn_app_id, target=_target(job))
    return Transaction(name=name, number=job.txn_version, fingerprints=_by_rows(name, files, job.txn_version))


def _of_stream(job: WriteJob, messages: Sequence[object], files: Sequence[StagedFile], batch: int) -> Transaction | None:
    """Return the transaction of a micro-batch: Spark's plan tells it from others of its number, else its rows do."""
    told = next((message for message in messages if isinstance(message, Staged) and message.query_id), None)
    if told is None:
        return None
    name = transaction_name(STREAM_TXN, str(told.query_id), target=_target(job))
    # By a publisher's numbers new rows are known, in any batch.
    found = {} if job.publisher is not None else _by_plan(job, name, told, batch) | _by_rows(name, files, batch)
    if not found and job.publisher is None:
        raise CallerError("PUBLISHER_IDENTITY_UNKNOWN", reason=f"the query's checkpoint has no offsets of batch {batch}.")
    return Transaction(name=name, number=batch, fingerprints=found)


def _by_plan(job: WriteJob, name: str, told: Staged, batch: int) -> dict[str, int]:
    """Return the fingerprint of Spark's plan of a batch, where that can be read.

    It is written before the batch runs, stays for its repeat, and is written anew, with another time, where it was lost.
    """
    store = next(iter(job.plans.values())).store
    if job.checkpoint is not None:
        checkpoint: Store | None = Store(job.checkpoint, store.storage_options)
    else:
        checkpoint = readable_checkpoint(told.checkpoint, store)
    planned = None if checkpoint is None else checkpoint.read(f"offsets/{batch}")
    return {} if planned is None else {f"{OFFSETS_TXN}{name}": fingerprint(b"offsets %d " % batch + planned)}


def _by_rows(name: str, files: Sequence[StagedFile], number: int) -> dict[str, int]:
    """Return the fingerprints of the rows, where tasks have made them."""
    if not all(file.columns for file in files):
        return {}
    rows = sum(file.row_count for file in files)
    every, kept = fingerprints_of_rows([file.columns for file in files], rows, number=number)
    return {f"{ROWS_TXN}{name}": every, f"{KEPT_TXN}{name}": kept}


def _target(job: WriteJob) -> str | None:
    """Return the topic that all rows go to; None where they name their own."""
    shape = next(iter(job.plans.values())).shape
    return None if shape.topic is None else shape.publish_targets.get(shape.topic, shape.topic)


def readable_checkpoint(location: str | None, journal: Store) -> Store | None:
    """Return a query's checkpoint if it is a directory of this host, or an object of a store as the journal's; else None.

    Credentials of stores of another kind are not known here, and to look for some in vain takes seconds.
    """
    if location is None:
        return None
    try:
        checkpoint = Store(location, journal.storage_options)
        if not checkpoint.is_local and (journal.is_local or _kind(checkpoint) != _kind(journal)):
            return None
        return checkpoint if checkpoint.read("metadata") is not None else None
    except SparkQueueError as reason:
        _log.info("Repeated batches are recognised by their rows, since the checkpoint cannot be read: %s", reason)
        return None


def _kind(store: Store) -> str:
    scheme = store.path.partition("://")[0].lower()
    return {"s3a": "s3", "abfss": "abfs"}.get(scheme, scheme)


def abort(job: WriteJob, messages: Sequence[object]) -> None:
    """Delete the staged files of a write whose commit was never tried.

    Spark aborts after a failed commit too, and a commit whose reply was lost may be in the log: its files must stay. A commit
    is tried once every task has sent its message, so a missing one says that there was none.
    """
    if any(message is None for message in messages):
        _discard(job, _staged(messages))


def _staged(messages: Sequence[object]) -> list[tuple[str, StagedFile]]:
    """Return the files that tasks staged, each with its message type; a failed task has no message, one without rows no file."""
    return [(str(each.message_type), each.file) for each in messages if isinstance(each, Staged) and each.file is not None]


def _discard(job: WriteJob, staged: Sequence[tuple[str, StagedFile]]) -> None:
    """Delete staged files that no commit names; one that cannot be deleted is a leftover that nobody sees."""
    for message_type, file in staged:
        try:
            job.plans[message_type].store.delete([f"{messages_key(message_type)}/{file.path}"])
        except SparkQueueError as reason:
            _log.info("a staged file was not deleted: %s", reason)
