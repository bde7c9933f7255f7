"""From options to readers, in planning processes; executors never load this.

Each start of a query loads this twice, in its planner and where its reader is pickled, before the first batch; so a module that one
kind of read alone needs, delta-rs above all, is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.core.definitions.definition import Definitions
from spark_queue.errors import ConfigError
from spark_queue.journal.folder import of_table
from spark_queue.journal.store import Store
from spark_queue.settings.read import read_options, read_purpose
from spark_queue.settings.registry import names_of
from spark_queue.settings.types import Purpose, QueueStreamOptions, TopicBatchOptions, TopicStreamOptions, ViewOptions
from spark_queue.source.columns import chosen, read_columns, to_spark
from spark_queue.source.offsets import QueueOffset, TopicOffset
from spark_queue.source.partitions import MessageReader
from spark_queue.source.spark_versions import arrow_schema, for_this_spark
from spark_queue.source.stream_reader import QueueStreamReader
from spark_queue.source.target import Target

#: Options that only the stream of a queue has: with one of them, a read of a queue is not meant to be a view of it.
_OF_QUEUE_STREAM = names_of(Purpose.QUEUE_STREAM) - names_of(Purpose.VIEW_BATCH)

_ReadOptions = QueueStreamOptions | TopicStreamOptions | TopicBatchOptions | ViewOptions


def describe(options: Mapping[str, str]) -> tuple[Target, StructType]:
    """Check the options of a read, and return its target and its columns.

    Spark asks before it says whether the read streams, so the options must tell; points that they leave open are checked when
    the read starts.
    """
    from spark_queue.journal.reader import open_with_definitions

    names = {name.lower() for name in options}
    given = _typed(options, streaming="topic" not in names and not _OF_QUEUE_STREAM.isdisjoint(names))
    if given.coordinator is not None or given.token_file is not None:
        from spark_queue.protocol.endpoint import Endpoint

        Endpoint(given.coordinator, given.token_file).check()
    store = Store(given.journal, given.storage)
    store.check_options()
    journal, (_, definitions) = open_with_definitions(store)
    if isinstance(given, ViewOptions):
        from spark_queue.views import view_schema

        target = Target(journal_id=journal.journal_id)
        return target, to_spark(view_schema(given.view, definitions, given.queue))
    target = _target(given, journal.journal_id, definitions)
    own = definitions.message_type(target.message_type).columns
    of_instance = definitions.journal.instance is not None
    columns = read_columns(own, leased=isinstance(given, QueueStreamOptions), of_instance=of_instance)
    return target, to_spark(chosen(columns, given.columns, where=f"message type '{target.message_type}'"))


def check_schema(given: StructType, own: StructType) -> None:
    """Refuse a schema of the user's that is no choice of a read's columns: one spelt or typed otherwise would read as NULL."""
    for column, name in zip(given, ColumnNames(own.names).resolve(given.names, where="the read"), strict=True):
        value = f"{column.name} {column.dataType.simpleString()}"
        expected = f"{name} {own[name].dataType.simpleString()}"
        if value != expected:
            raise ConfigError("BAD_VALUE", key=column.name, where="the schema", value=value, expected=f"'{expected}'")


def make_reader(
    options: Mapping[str, str], target: Target, schema: StructType, *, streaming: bool
) -> DataSourceReader | DataSourceStreamReader:
    """Make the stream or the batch read of a queue, a topic or a view."""
    given = _typed(options, streaming=streaming)
    schema_of_batches = arrow_schema(schema)
    if isinstance(given, ViewOptions):
        from spark_queue.source.view_reader import ViewReader

        return ViewReader(given, target.journal_id, schema=schema_of_batches)
    store = Store(given.journal, given.storage)
    reader = MessageReader(
        store=store, message_type=target.message_type, schema=schema_of_batches, topic=target.topic or None,
        table=None if target.table is None else of_table(store, target.table),
    )  # fmt: skip
    if isinstance(given, QueueStreamOptions):
        start = QueueOffset(journal=target.journal_id, queue=given.queue, subscription=given.subscription)
        return for_this_spark(QueueStreamReader(given, first_offset=start, reader=reader, columns=target.columns))
    from spark_queue.source.topic_reader import TopicBatchReader, TopicStreamReader

    offset = TopicOffset(journal=target.journal_id, message_type=target.message_type, topic=target.topic)
    if isinstance(given, TopicBatchOptions):
        return TopicBatchReader(given, offset, reader=reader)
    return for_this_spark(TopicStreamReader(given, first_offset=offset, reader=reader, columns=target.columns))


def _typed(options: Mapping[str, str], *, streaming: bool) -> _ReadOptions:
    given = read_options(options, read_purpose(options, streaming=streaming))
    assert isinstance(given, QueueStreamOptions | TopicStreamOptions | ViewOptions)
    return given


def _target(given: QueueStreamOptions | TopicStreamOptions, journal_id: str, definitions: Definitions) -> Target:
    if isinstance(given, QueueStreamOptions):
        topic, message_type = "", definitions.message_type(definitions.queue(given.queue).message_type)
    else:
        topic, message_type = definitions.locate(given.topic)
    return Target(
        journal_id=journal_id, message_type=message_type.name, topic=topic, table=message_type.table,
        columns=message_type.columns if given.columns is None else None,
    )  # fmt: skip
