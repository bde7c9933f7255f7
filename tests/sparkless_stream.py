"""A stream into a Delta table without its JVM: planner, wrapper, readers and sink of the product; Spark's part is left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Self, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import InputPartition

from spark_queue.journal.schema import schema_of
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import LOCAL
from spark_queue.settings.types import QueueStreamOptions
from spark_queue.source.foreach_batch import BatchFunction
from spark_queue.source.into import SinkWrapper
from spark_queue.source.offsets import QueueOffset
from spark_queue.source.partitions import MessageReader
from spark_queue.source.planner import QueuePlanner
from spark_queue.source.planning import cut
from spark_queue.source.proof_listener import ProofListener

READ = schema_of(pa.field("bookmark", pa.int64()), pa.field("value", pa.string()))
_FIELDS = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (("bookmark", "long"), ("value", "string"))
]


class SparklessRows(DataFrame):
    """What the wrapper asks of a batch's DataFrame, answered by Arrow."""

    columns = READ.names
    # Spark's are properties.
    schema = SimpleNamespace(jsonValue=lambda: {"fields": _FIELDS})  # type: ignore[assignment]
    sparkSession = SimpleNamespace()  # type: ignore[assignment]  # noqa: N815 - Spark's name

    def __new__(cls, *_: Any, **__: Any) -> Self:
        # Spark's own makes one that lives in a JVM.
        return object.__new__(cls)

    def __init__(
        self, reader: MessageReader, partitions: list[InputPartition], *, left_out: Callable[[pa.Table], list[int]] | None = None
    ) -> None:
        self._reader, self._partitions, self._left_out = reader, partitions, left_out

    def without(self, left_out: Callable[[pa.Table], list[int]]) -> SparklessRows:
        """Return the rows but those at some places."""
        return SparklessRows(self._reader, self._partitions, left_out=left_out)

    def select(self, *_: Any) -> DataFrame:
        return self

    def toDF(self, *_: str) -> DataFrame:  # noqa: N802 - Spark's name
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return pa.Table.from_batches(self._batches(), READ)

    def mapInArrow(self, func: Callable[..., Iterator[pa.RecordBatch]], *_: Any, **__: Any) -> Any:  # noqa: N802 - Spark's name
        found = [SimpleNamespace(file=text) for each in func(self._batches()) for text in each.column(0).to_pylist()]
        return SimpleNamespace(collect=lambda: found)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches([each for part in self._partitions for each in self._reader.read(part)], READ)
        out = set(self._left_out(rows)) if self._left_out is not None else set()
        kept = pa.array([place for place in range(len(rows)) if place not in out], pa.int64())
        return iter((rows.take(kept) if out else rows).to_batches())


class SparklessStream:
    """A subscription of a queue whose batches are appended to a table."""

    def __init__(
        self,
        store: Store,
        journal_id: str,
        *,
        queue: str,
        subscription: str,
        message_type: str,
        table: str,
        rows: int,
        fn: BatchFunction | None = None,
        available_now: bool = False,
    ) -> None:
        options = QueueStreamOptions(
            journal=store.path, storage=store.storage_options, coordinator=None, queue=queue, subscription=subscription,
            ack_mode="auto", max_backlog=rows, filter=None, columns=None, min_partitions=None,
        )  # fmt: skip
        self._planner = QueuePlanner(options, journal_id, columns=None, available_now=available_now)
        self._wrapper = SinkWrapper(
            fn, table=table, storage_options=store.storage_options, store=store, endpoint=LOCAL, queue=queue,
            subscription=subscription,
        )  # fmt: skip
        # In Spark's driver one listens for commits.
        self._wrapper._listener = cast(ProofListener, object())
        self._reader = MessageReader(store=store, message_type=message_type, schema=READ)
        self._offset: Mapping[str, Any] = QueueOffset(journal=journal_id, queue=queue, subscription=subscription).to_json()
        self._rows, self._lease, self._batches = rows, 0, 0
        self._proof: threading.Thread | None = None
        #: How long each batch took from `latestOffset` to the end of the batch function, in seconds.
        self.times_s: list[float] = []

    def batch(self, *, wait_ms: int = 1_000) -> int:
        """Take the next batch, as Spark does; returns its messages, 0 where none came in time."""
        begun_s = time.perf_counter()
        granted = self._planner.next(finished=self._lease, limit=self._rows, wait_ms=wait_ms, asks_again=wait_ms > 0)
        if granted.lease == self._lease:
            return 0
        leased = self._planner.rows(granted.lease)
        self._lease = granted.lease
        partitions: list[InputPartition] = [
            *cut(leased.pieces, min_partitions=None, lease=leased.lease, leased_until_ms=leased.leased_until_ms)
        ]
        self._wrapper(SparklessRows(self._reader, partitions), self._batches)
        self._batches += 1
        self.times_s.append(time.perf_counter() - begun_s)
        # Spark tells of its commit in a thread of the listener's.
        self._proof = threading.Thread(target=self._prove, args=({**self._offset, "lease": granted.lease},))
        self._proof.start()
        return granted.messages

    def _prove(self, offset: Mapping[str, Any]) -> None:
        reporter = self._wrapper._reporter
        assert reporter is not None, "it has spoken for a batch"
        reporter.prove(offset)

    def die(self) -> None:
        """End as a process that is killed, once what it has said is under way no more: nothing is renewed, and nobody is told."""
        if self._proof is not None:
            self._proof.join()
        self._planner._renewer.stop()

    def end(self) -> None:
        """Wait for the last proof, and leave."""
        if self._proof is not None:
            self._proof.join()
        self._planner.leave()
