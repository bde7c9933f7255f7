"""The commit of a write: what tasks staged becomes one publish.

From options to writers: what the planning side of a write needs, and executors never load.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql.types import StructType

from spark_queue.client.changes import check_writes
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.errors import CallerError, ConfigError, SparkQueueError
from spark_queue.journal.publisher import Identity, commit_staged, make_plan
from spark_queue.journal.reader import open_reader
from spark_queue.journal.staging import StagedFile
from spark_queue.journal.store import Store, messages_key
from spark_queue.protocol.connection import Endpoint
from spark_queue.settings.read import read_options
from spark_queue.settings.types import Purpose, WriteOptions
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


#: How Spark hands over what ``partitionBy`` named.
_PARTITION_COLUMNS = "__partition_columns"


def plan_write(options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool) -> WriteJob:
    """Check the options and columns of a write, and plan it.

    Raises
    ------
    CallerError
        UNSUPPORTED_WRITE for anything but appending rows; UNKNOWN_COLUMN, TOPIC_MISSING, SEQUENCE_MISSING.
    ConfigError
        Whatever is wrong with the options.
    """
    _check_mode(options, overwrite=overwrite)
    given = read_options(options, Purpose.WRITE_STREAM if streaming else Purpose.WRITE_BATCH)
    assert isinstance(given, WriteOptions)
    _check_columns(given, schema)
    store, endpoint = Store(given.journal, given.storage), Endpoint(given.coordinator, given.token_file)
    endpoint.check()
    journal = open_reader(store)
    definitions = journal.definitions()
    message_type = None if given.topic is None else definitions.route(given.topic)[1].name
    if definitions.principals and given.topic is not None:
        check_writes(definitions, [given.topic], partial(endpoint.token, store))
    names = definitions.message_types if message_type is None else (message_type,)
    durations = {"expires_after_ms": given.expires_after_ms, "deliver_after_ms": given.deliver_after_ms}
    plans = {name: make_plan(store, definitions, message_type=name, topic=given.topic, **durations) for name in names}
    if message_type is not None:
        plans[message_type].shape.declared(schema.fieldNames())
    transaction = None if given.txn_app_id is None else (f"t:{given.txn_app_id}", int(given.txn_version or 0))
    return WriteJob(
        journal_id=journal.journal_id,
        endpoint=endpoint,
        plans=plans,
        message_type=message_type,
        definitions={} if message_type is not None else definitions.stored,
        publisher=given.publisher,
        sequence_column=given.sequence_column,
        transaction=transaction,
    )


def _check_mode(options: Mapping[str, str], *, overwrite: bool) -> None:
    if overwrite:
        reason = "a journal keeps what was published, so rows are only appended."
        raise CallerError("UNSUPPORTED_WRITE", what="Overwriting", reason=reason, next_step='Use mode("append").')
    if _PARTITION_COLUMNS in options:
        reason = "message tables are kept in publish order."
        raise CallerError("UNSUPPORTED_WRITE", what="partitionBy", reason=reason, next_step="Leave it out.")


def _check_columns(given: WriteOptions, schema: StructType) -> None:
    names = ColumnNames(schema.fieldNames())
    if not schema.fieldNames():
        reason, next_step = "Spark does not say how many they are.", "Select a column of the message type, as NULL if need be."
        raise CallerError("UNSUPPORTED_WRITE", what="Writing rows without columns", reason=reason, next_step=next_step)
    if given.topic is None and names.find("topic") is None:
        raise CallerError("TOPIC_MISSING", rows="all")
    if given.publisher is not None and given.sequence_column is None:
        what, reason = "option sequenceColumn", "Without it a repeat could not be told from new rows (R95)."
        raise CallerError("SEQUENCE_MISSING", publisher=given.publisher, what=what, reason=reason)
    if given.sequence_column is not None and names.find(given.sequence_column) is None:
        reason = f"The rows have no column '{given.sequence_column}'."
        raise CallerError("SEQUENCE_MISSING", publisher=given.publisher, what="a sequence column", reason=reason)
