"""From options to writers, on the planning side of a write; executors never load this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from pyspark.sql.types import StructType

from spark_queue.client.rights import check_writes
from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.errors import CallerError
from spark_queue.journal.publisher import make_plan
from spark_queue.journal.reader import open_with_definitions
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.settings.read import read_options
from spark_queue.settings.types import BatchWriteOptions, Purpose, WriteOptions
from spark_queue.source.committing import readable_checkpoint
from spark_queue.source.write_job import WriteJob

#: The option by which Spark hands over the columns of ``partitionBy``.
_PARTITION_COLUMNS = "__partition_columns"


def plan_write(options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool) -> WriteJob:
    """Check the options and columns of a write, and plan it."""
    _check_mode(options, overwrite=overwrite)
    given = read_options(options, Purpose.WRITE_STREAM if streaming else Purpose.WRITE_BATCH)
    assert isinstance(given, WriteOptions)
    _check_columns(given, schema)
    store, endpoint = Store(given.journal, given.storage), Endpoint(given.coordinator, given.token_file)
    endpoint.check()
    store.check_options()
    journal, (_, definitions) = open_with_definitions(store)
    message_type = None if given.topic is None else definitions.route(given.topic)[1].name
    if definitions.principals and given.topic is not None:
        check_writes(definitions, [given.topic], partial(endpoint.token, store))
    names = definitions.published_types if message_type is None else (message_type,)
    durations = {"expires_after_ms": given.expires_after_ms, "deliver_after_ms": given.deliver_after_ms}
    plans = {name: make_plan(store, definitions, message_type=name, topic=given.topic, **durations) for name in names}
    if message_type is not None:
        plans[message_type].shape.declared(schema.fieldNames())
    lowered = {name.lower(): value for name, value in options.items()}
    location = lowered.get("checkpointlocation") if streaming else None
    checkpoint = location if readable_checkpoint(location, store) is not None else None
    # A repeat is known by nothing else, and tasks have to be asked for their fingerprints beforehand.
    of_batch = given if isinstance(given, BatchWriteOptions) else None
    compares = checkpoint is None if of_batch is None else of_batch.txn_app_id is not None and of_batch.txn_compare == "rows"
    if given.publisher is None and compares:
        plans = {name: replace(plan, sums_columns=True) for name, plan in plans.items()}
    return WriteJob(
        journal_id=journal.journal_id,
        endpoint=endpoint,
        plans=plans,
        message_type=message_type,
        definitions={} if message_type is not None else definitions.stored,
        publisher=given.publisher,
        sequence_column=given.sequence_column,
        txn_app_id=None if of_batch is None else of_batch.txn_app_id,
        txn_version=0 if of_batch is None else of_batch.txn_version or 0,
        checkpoint=checkpoint,
        query_name=lowered.get("queryname"),
    )


def _check_mode(options: Mapping[str, str], *, overwrite: bool) -> None:
    if overwrite:
        reason = "a journal keeps every message, so rows can only be appended."
        raise CallerError("UNSUPPORTED_WRITE", what="Overwriting", reason=reason, next_step='Use mode("append").')
    if _PARTITION_COLUMNS in options:
        reason = "message tables are in publish order."
        raise CallerError("UNSUPPORTED_WRITE", what="partitionBy", reason=reason, next_step="Leave it out.")


def _check_columns(given: WriteOptions, schema: StructType) -> None:
    names = ColumnNames(schema.fieldNames())
    if not schema.fieldNames():
        reason, next_step = "Spark does not say how many they are.", "Select a column of the message type, as NULL if need be."
        raise CallerError("UNSUPPORTED_WRITE", what="Writing rows without columns", reason=reason, next_step=next_step)
    if given.topic is None and names.find("topic") is None:
        raise CallerError("TOPIC_MISSING", rows="all")
    if given.publisher is not None and given.sequence_column is None:
        what, reason = "option sequenceColumn", "Without it, a repeat could not be told from new rows (R95)."
        raise CallerError("SEQUENCE_MISSING", publisher=given.publisher, what=what, reason=reason)
    if given.sequence_column is not None and names.find(given.sequence_column) is None:
        reason = f"The rows have no column '{given.sequence_column}'."
        raise CallerError("SEQUENCE_MISSING", publisher=given.publisher, what="a sequence column", reason=reason)
