"""Gates at named points of a micro-batch: a test closes one, and whoever comes to it says so and waits until it opens.

A gate is two files: the test makes and removes the one that closes it, the process that came to it leaves its id in the other.
The source with gates is the real one; it only waits at some places.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_queue.source.datasource import SparkQueueDataSource
from spark_queue.source.partitions import MessageReader
from spark_queue.source.spark_versions import ReadLimit, for_this_spark
from spark_queue.source.stream_reader import QueueStreamReader

#: The planner is about to ask for messages, of which there are none; it does not wait at the gate but in its long poll.
BEFORE_GRANT = "before grant"
#: The grant is committed and the planner has not answered Spark, so no offset log names the lease.
GRANTED = "between grant and offset log"
#: A Python worker has given the first row of a partition.
IN_READ = "in read"
#: The batch function has begun and looked at nothing.
IN_FN = "in fn"
#: The batch function has written its sink and not returned.
SINK_WRITTEN = "between sink write and proof"
#: Spark has committed a batch, and the planner has not asked for the next; the listener proves the batch meanwhile.
COMMITTED = "after proof"

POINTS = (BEFORE_GRANT, GRANTED, IN_READ, IN_FN, SINK_WRITTEN, COMMITTED)

#: How often somebody at a gate, or waiting for somebody to come to it, looks again.
LOOK_AGAIN_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """All gates of one consumer, as files in a folder."""

    folder: Path

    def close(self, point: str, *, after_lease: int = 0) -> None:
        """Make the next who comes to a point wait there; to `COMMITTED`, with a later lease than this one."""
        self._reached(point).unlink(missing_ok=True)
        partial = self.folder / f"{point}.closing"
        partial.write_text(str(after_lease))
        partial.rename(self._closed(point))

    def open(self, point: str) -> None:
        """Let pass who waits at a point."""
        self._closed(point).unlink(missing_ok=True)

    def is_closed_after(self, point: str, lease: int) -> bool:
        """Return whether a gate is closed to a lease; the batch before may be committed while the gate is closed."""
        try:
            return int(self._closed(point).read_text()) < lease
        except FileNotFoundError:
            return False

    def who_came_to(self, point: str) -> int | None:
        """Return the id of the process that came to a closed gate, if one did."""
        reached = self._reached(point)
        return int(reached.read_text()) if reached.exists() else None

    def note(self, point: str) -> None:
        """Say that this process came to a point, if its gate is closed."""
        if self._closed(point).exists() and not self._reached(point).exists():
            partial = self.folder / f"{point}.{os.getpid()}"
            partial.write_text(str(os.getpid()))
            partial.rename(self._reached(point))

    def stop_at(self, point: str) -> None:
        """Say that this process came to a point, and wait while its gate is closed."""
        self.note(point)
        while self._closed(point).exists():
            threading.Event().wait(LOOK_AGAIN_S)

    def _closed(self, point: str) -> Path:
        return self.folder / f"{point}.closed"

    def _reached(self, point: str) -> Path:
        return self.folder / f"{point}.reached"


class GatedSource(SparkQueueDataSource):
    """The source, whose streams stop at the gates beside their journal."""

    @classmethod
    def name(cls) -> str:
        return "gated_sparkqueue"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name.
        reader: Any = super().streamReader(schema)
        stream = reader if isinstance(reader, QueueStreamReader) else reader._stream
        return for_this_spark(_GatedStream(stream, Gates(folder=Path(self._options["path"]).parent)))


class _GatedStream(QueueStreamReader):
    def __init__(self, stream: QueueStreamReader, gates: Gates) -> None:
        reader: Any = _GatedReader(stream._reader, gates)
        super().__init__(stream._options, first_offset=stream._first_offset, reader=reader, columns=stream._columns)
        self._gates = gates
        self._newest: dict[str, Any] | None = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name.
        if self._newest == start and self._gates.is_closed_after(COMMITTED, start["lease"]):
            self._gates.stop_at(COMMITTED)
        self._gates.note(BEFORE_GRANT)
        latest = super().latestOffset(start, limit)
        if latest != start:
            self._newest = latest
            self._gates.stop_at(GRANTED)
        return latest


@dataclass(frozen=True, slots=True)
class _GatedReader:
    reader: MessageReader
    gates: Gates

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self.reader.read(partition):
            yield batch.slice(0, 1)
            self.gates.stop_at(IN_READ)
            yield batch.slice(1)
