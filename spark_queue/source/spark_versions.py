"""Differences between the Sparks that a source runs on (DESIGN 7); no other module imports names that only some have.

From 4.2 on Spark tells a stream the offset that it has committed, its limit of rows, and that it ends with the rows of now.
Spark 4.0 and 4.1 do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_queue.source.partitions import PlanningReader

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    # Spark 4.0 only asks whether a writer takes Arrow, of streams, too.
    DataSourceStreamArrowWriter = DataSourceArrowWriter  # type: ignore[misc, assignment]

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:
    TELLS_COMMITTED = False
    _TIME_ZONE: dict[str, Any] = {}

    class ReadLimit:  # type: ignore[no-redef]  # It is not there.
        """Spark's limit of a micro-batch, as 4.2 has it."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]  # It is not there.
        """All rows that are there."""

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]  # It is not there.
        """At most so many rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]  # It is not there.
        """A stream that fixes its end, which these Sparks ask of none."""

else:
    #: Whether this Spark names the offset that it has committed when it asks for the next one.
    TELLS_COMMITTED = True
    _TIME_ZONE = {"timezone": "UTC"}

__all__ = [
    "DataSourceStreamArrowWriter", "EarlierStreamReader", "ReadAllAvailable", "ReadLimit", "ReadMaxRows",
    "SupportsTriggerAvailableNow", "arrow_schema", "for_this_spark",
]  # fmt: skip


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of record batches for Spark's own `schema`; instants are in UTC."""
    return to_arrow_schema(schema, **_TIME_ZONE)


def for_this_spark(stream: Any) -> DataSourceStreamReader:
    """Return a stream as the installed Spark calls it."""
    reader: DataSourceStreamReader = stream if TELLS_COMMITTED else EarlierStreamReader(stream)
    return reader


class EarlierStreamReader(PlanningReader, DataSourceStreamReader):
    """A stream of Spark 4.2's form, as Spark 4.0 and 4.1 call it.

    They ask for a next offset only once the batch of the last one is committed, as every Spark does, and plan a batch that is not
    committed anew after a restart. So the committed offset is the end of the newest batch that was planned in this start; and
    before any was, the newest offset of the checkpoint, for which they call ``partitions(offset, offset)`` before all else.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._reader = stream._reader  # noqa: SLF001 - what executors run is the stream's own.
        self._committed: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch."""
        offset: dict[str, Any] = self._stream.initialOffset()
        return offset

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # As these Sparks call it.
        """Return the end of the next batch, or the committed offset where nothing is there."""
        committed = self.initialOffset() if self._committed is None else self._committed
        latest: dict[str, Any] = self._stream.latestOffset(committed, self._stream.getDefaultReadLimit())
        return latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch, which the next call of `latestOffset` finds committed."""
        planned: Sequence[InputPartition] = self._stream.partitions(start, end)
        self._committed = end
        return planned

    def stop(self) -> None:
        """End the run."""
        self._stream.stop()
