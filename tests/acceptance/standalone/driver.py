"""A driver on a cluster: it publishes its share of the messages, and consumes what comes, until it is told to stop.

Executors make the rows that are published, and look at the rows that are consumed. What they saw is one file per run of the batch
function on the disk of the driver, written before the batch can be proven; judgement rests on these files.
"""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_queue import Journal, configure_spark

TOPIC, QUEUE = "READINGS", "WORK"

#: What a driver says at last.
STOPPED = "The driver has stopped."

#: Many short-lived JVMs on few cores: the thorough compiler and the parallel collector would cost more than they bring.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: The body of a message is made of its id.
_TEXT = " of a sensor that says the same about as much every time"
BODY = f"concat('reading ', id, '{_TEXT}') AS body"

#: What an executor says of the rows that it was given: where it was, and whether the disk of the driver was there.
_SEEN_FIELDS: list[pa.Field[Any]] = [
    pa.field("executor", pa.string()),
    pa.field("driver_disk", pa.bool_()),
    pa.field("wrong_bodies", pa.int64()),
    pa.field("bookmarks", pa.list_(pa.int64())),
    pa.field("ids", pa.list_(pa.int64())),
]
SEEN = pa.schema(_SEEN_FIELDS)
_SEEN_DDL = "executor STRING, driver_disk BOOLEAN, wrong_bodies BIGINT, bookmarks ARRAY<BIGINT>, ids ARRAY<BIGINT>"


class Orders(msgspec.Struct, kw_only=True, frozen=True):
    """What a driver is told to do."""

    name: str
    #: The folder of its disk.
    place: str
    master: str
    journal: str
    storage: dict[str, str]
    #: Where coordinators may serve; None where it starts one.
    coordinator: str | None
    #: Ids of its messages, and how many are published at once.
    first: int
    until: int
    at_once: int
    max_backlog: int


class Publisher:
    """Publishes as far as the file `allowed` says, and counts in the file `published`, for one that starts again."""

    def __init__(self, spark: SparkSession, orders: Orders) -> None:
        self._spark = spark
        self._orders = orders

    def publish(self) -> bool:
        """Publish the next messages; returns whether there were any.

        After an end it is not known whether they were published; the same again count once.
        """
        orders, place = self._orders, Path(self._orders.place)
        first = _count(place / "published", orders.first)
        until = min(first + orders.at_once, orders.until)
        if first == until or until > _count(place / "allowed", orders.first):
            return False
        frame = self._spark.range(first, until, 1, 2).selectExpr("id", BODY)
        writer = frame.write.format("sparkqueue").options(**_storage(orders)).option("topic", TOPIC).mode("append")
        writer.option("txnAppId", orders.name).option("txnVersion", first).save(orders.journal)
        partial = place / "published.partial"
        partial.write_text(str(until))
        partial.rename(place / "published")
        return True


def look(marker: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make what executors do with rows."""

    def looked_at(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = batch.column("id").to_pylist()
            wrong = sum(
                body != f"reading {number}{_TEXT}" for number, body in zip(ids, batch.column("body").to_pylist(), strict=True)
            )
            row = {
                "executor": socket.gethostname(), "driver_disk": Path(marker).exists(), "wrong_bodies": wrong,
                "bookmarks": batch.column("bookmark").to_pylist(), "ids": ids,
            }  # fmt: skip
            yield pa.RecordBatch.from_pylist([row], schema=SEEN)

    return looked_at


def sink_into(orders: Orders) -> Callable[[DataFrame, int], None]:
    """Make a batch function that keeps what executors saw."""
    marker, sink = Path(orders.place, f"disk-of-{orders.name}"), Path(orders.place, "sink")
    marker.touch()
    sink.mkdir(exist_ok=True)
    looked_at = look(str(marker))

    def fn(batch: DataFrame, batch_id: int) -> None:
        seen = batch.select("bookmark", "id", "body").mapInArrow(looked_at, _SEEN_DDL).toArrow()
        partial = sink / f"{uuid.uuid4().hex}.partial"
        pq.write_table(seen, partial)
        partial.rename(partial.with_suffix(".parquet"))

    return fn


def work(spark: SparkSession, orders: Orders) -> None:
    """Publish and consume until the file `stop` is there; what fails is started again."""
    stop, publisher = Path(orders.place, "stop"), Publisher(spark, orders)
    journal = Journal(orders.journal, storage_options=orders.storage, coordinator=orders.coordinator)
    fn = journal.queue(QUEUE).foreach_batch(sink_into(orders), subscription=orders.name)
    options = {"queue": QUEUE, "subscription": orders.name, "maxBacklog": orders.max_backlog, **_storage(orders)}
    while not stop.exists():
        stream = spark.readStream.format("sparkqueue").options(**options).load(orders.journal)
        query = stream.writeStream.foreachBatch(fn).option("checkpointLocation", f"{orders.place}/checkpoint").start()
        try:
            while query.isActive and not stop.exists():
                if not publisher.publish():
                    query.awaitTermination(1)
        except PySparkException as failure:
            _say(f"starts again: {str(failure)[-600:]}")
        finally:
            query.stop()


def _storage(orders: Orders) -> dict[str, Any]:
    named = {} if orders.coordinator is None else {"coordinator": orders.coordinator}
    return {**{f"storage.{name}": value for name, value in orders.storage.items()}, **named}


def _count(file: Path, otherwise: int) -> int:
    return int(file.read_text()) if file.exists() else otherwise


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(arguments: list[str]) -> None:
    """Do what the file of orders says."""
    orders = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Orders)
    builder = configure_spark(SparkSession.Builder().master(orders.master).appName(orders.name))
    spark = (
        builder.config("spark.driver.memory", "700m")
        .config("spark.executor.memory", "512m")
        # Each driver has one executor on each of the workers.
        .config("spark.cores.max", "2")
        .config("spark.executor.cores", "1")
        .config("spark.driver.extraJavaOptions", JAVA)
        .config("spark.executor.extraJavaOptions", JAVA)
        .config("spark.sql.warehouse.dir", f"{orders.place}/warehouse")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    work(spark, orders)
    spark.stop()
    _say(STOPPED)


if __name__ == "__main__":
    main(sys.argv[1:])
