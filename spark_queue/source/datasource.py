"""The data source ``sparkqueue``, as Spark sees it.

Spark pickles this object to every process that reads, executors included, so it is nothing but its options and the target
found at load; code that needs more than pyarrow stands in `loading` and `stream_writer`, imported where Spark plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_queue.source.target import Target


class SparkQueueDataSource(DataSource):
    """Queues as streams of leased messages, topics and views as reads, publishing as a write."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options.items())
        self._target: Target | None = None

    @classmethod
    def name(cls) -> str:
        """Return the short name of the format."""
        return "sparkqueue"

    def schema(self) -> StructType:
        """Return the columns of the read that the options describe; wrong options are refused before anything starts."""
        from spark_queue.source import loading

        self._target, schema = loading.describe(self._options)
        return schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream of a queue or of a topic."""
        from spark_queue.source import loading

        return cast(DataSourceStreamReader, loading.make_reader(self._options, self._found(schema), schema, streaming=True))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch read of a topic or of a view."""
        from spark_queue.source import loading

        return cast(DataSourceReader, loading.make_reader(self._options, self._found(schema), schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001 - Spark's signature.
        """Return the writer that publishes each micro-batch."""
        from spark_queue.source import stream_writer, writing

        return stream_writer.StreamWriter(writing.plan_write(self._options, schema, overwrite=overwrite, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature.
        """Return the writer that publishes a DataFrame."""
        from spark_queue.source import stream_writer, writing

        return stream_writer.BatchWriter(writing.plan_write(self._options, schema, overwrite=overwrite, streaming=False))

    def _found(self, schema: StructType) -> Target:
        """Return the target of the read; a schema that the user named keeps Spark from asking for ours before."""
        if self._target is None:
            from spark_queue.source import loading

            loading.check_schema(schema, self.schema())
            # It names the columns, and so has chosen them.
            self._target = replace(cast(Target, self._target), columns=None)
        return self._target
