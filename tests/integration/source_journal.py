"""A journal with one queue, and a stream over it, for tests that run real Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_queue import Journal
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.protocol import wire
from spark_queue.source.spark_versions import TELLS_COMMITTED
from tests import waiting
from tests.integration.coordinator_world import wait_for_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Runs that a few messages may take, one batch each, where some of them fail.
MOST_RUNS = 20

COLUMNS = "id BIGINT NOT NULL, item STRING"


def definitions(**queue: Any) -> dict[str, Any]:
    """Return definitions of one message type, one topic, and queue WORK with the given keys."""
    return {
        "message_types": {"order": {"columns": COLUMNS, "topics": ["ORDERS", "RETURNS"]}},
        "queues": {"WORK": {"underlying_topic": "ORDERS", **queue}},
    }


def orders(first: int, count: int) -> list[dict[str, Any]]:
    """Return rows with the ids first, first + 1, …"""
    return [{"id": number, "item": f"item {number}"} for number in range(first, first + count)]


@dataclass(frozen=True)
class SourceJournal:
    """A journal in a directory of its own, and where its streams keep their checkpoints."""

    journal: Journal
    home: Path
    spark: SparkSession

    def publish(self, first: int, count: int, *, topic: str = "ORDERS") -> None:
        self.journal.publish(orders(first, count), topic=topic)

    def stream(self, *, queue: str = "WORK", subscription: str = "s", **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("sparkqueue").option("queue", queue).option("subscription", subscription)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(self.journal.path)

    def wrapped(self, fn: Callable[..., Any], *, subscription: str = "s", **arguments: Any) -> Callable[[DataFrame, int], None]:
        return self.journal.queue("WORK").foreach_batch(fn, subscription=subscription, **arguments)

    def checkpoint(self, name: str = "s") -> str:
        return str(self.home / "checkpoints" / name)

    def start(
        self,
        fn: Callable[..., Any],
        *,
        checkpoint: str = "s",
        trigger: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> StreamingQuery:
        """Start a wrapped function over the queue's stream."""
        writer = self.stream(**(options or {})).writeStream.foreachBatch(self.wrapped(fn, **arguments))
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", self.checkpoint(checkpoint)).start()

    def run(self, fn: Callable[..., Any], **arguments: Any) -> None:
        """Run until nothing is left, and raise what the query raised; a Spark before 4.2 ends after one batch."""
        self.start(fn, trigger={"availableNow": True}, **arguments).awaitTermination()
        self.hear_all()

    def hear_all(self) -> None:
        """Wait until Spark has told what it committed: before 4.2 nothing else tells of a run's last batch."""
        context: Any = self.spark.sparkContext._jsc
        context.sc().listenerBus().waitUntilEmpty()

    def run_on(
        self, fn: Callable[..., Any], *, options: Mapping[str, Any] | None = None, left: int = 0, **arguments: Any
    ) -> list[StreamingQuery]:
        """Run a wrapped function over the queue's stream until so many messages are left; see `run_out`."""
        stream = self.stream(**(options or {}))
        return self.run_out(stream.writeStream.foreachBatch(self.wrapped(fn, **arguments)), left=left)

    def run_out(self, writer: DataStreamWriter, *target: str, left: int = 0) -> list[StreamingQuery]:
        """Run a query as often as it takes until so many messages of the queue are left: before 4.2 a run takes one batch."""
        writer, queries = writer.option("checkpointLocation", self.checkpoint()).trigger(availableNow=True), []
        for _ in range(1 if TELLS_COMMITTED else MOST_RUNS):
            queries.append(writer.start(*target))
            queries[-1].awaitTermination()
            self.hear_all()
            if self.journal.queue("WORK").status().queue_depth == left:
                break
        return queries

    def forget(self, log: str, batch_id: int) -> None:
        """Take a batch out of a log of the checkpoint, with its checksum file."""
        for name in (str(batch_id), f".{batch_id}.crc"):
            (Path(self.checkpoint()) / log / name).unlink()

    def history(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.journal.view("history").to_pylist() if row["kind"] == kind]

    def figures(self) -> tuple[int, int, int]:
        """Return how many messages are available, leased and acknowledged."""
        status = self.journal.queue("WORK").status()
        return status.available, status.backlog, status.acknowledged

    def close(self) -> None:
        """End the coordinator, if one runs."""
        end_coordinator(self.journal)


def end_coordinator(journal: Journal) -> None:
    """End a journal's coordinator, if one runs."""
    journal_id = journal.journal_id()
    client = CoordinatorClient(journal.store, journal_id, start=False)
    try:
        serving = client.call(wire.Ping(journal=journal_id, request="ping"))
        client.call(wire.Stop(journal=journal_id, request="stop"))
        assert isinstance(serving, wire.Pong)
        wait_for_end(serving.pid)
    except Exception as reason:
        if "COORDINATOR_UNAVAILABLE" not in str(reason):
            raise
    finally:
        client.close()


#: Makes a journal of a name, whose queue WORK has the given keys.
MakeHome = Callable[..., SourceJournal]


@dataclass
class Seen:
    """What a batch function saw: ids by batch."""

    batches: list[tuple[int, list[int]]] = field(default_factory=list)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.batches.append((batch_id, sorted(row["id"] for row in batch.select("id").collect())))

    @property
    def ids(self) -> list[int]:
        return [number for _, ids in self.batches for number in ids]


def wait_until(what: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Wait for something that a query or another process does, and fail with what the query raised."""

    def is_so() -> bool:
        if what():
            return True
        failure = None if query is None else query.exception()
        if failure is not None:
            raise failure
        return False

    waiting.wait_until(is_so)


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()
