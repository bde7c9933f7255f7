"""What a driver does on a cluster of real executor processes, run in a process of its own: a JVM holds one master.

Every function is one story on one journal, and gives what it saw as plain values.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_queue import Journal, configure_spark
from tests.source_tree import ROOT

#: Two workers with one core and 1,024 MB each.
MASTER = "local-cluster[2,1,1024]"

TOPIC = "ORDERS"
QUEUE = "WORK"

#: Larger together than all buffers between a reading and a using process.
ROWS = 200_000
ITEM = "x" * 200


@dataclass
class Sight:
    """What the batches of one run looked like."""

    #: Bookmarks of each batch, sorted.
    batches: list[list[int]] = field(default_factory=list)
    #: Process ids of the executors' Python daemons that worked on each batch.
    executors: list[list[int]] = field(default_factory=list)
    deliveries: list[int] = field(default_factory=list)
    #: What the query raised; empty when it ended well.
    failure: str = ""


def start(home: str) -> None:
    """Start the cluster of this process; what it writes stays below `home`."""
    os.environ["SPARK_HOME"] = _installation(Path(home))
    configured = configure_spark(SparkSession.Builder().master(MASTER).appName("spark_queue tests on a cluster"))
    (
        configured.config("spark.executor.memory", "512m")
        # Executors start elsewhere, and this package need not be installed for the tests.
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile='{ROOT / 'conf' / 'log4j2.properties'}'")
        # Executors, too, live for moments.
        .config("spark.executor.extraJavaOptions", os.environ.get("SPARK_SUBMIT_OPTS", ""))
        .config("spark.sql.warehouse.dir", f"{home}/warehouse")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def stop() -> None:
    """End the cluster."""
    SparkSession.active().stop()


def _installation(home: Path) -> str:
    """Link to the installation from pip, which is complete: a worker puts its executors' directories below the one it is given."""
    for part in Path(pyspark.__path__[0]).iterdir():
        (home / part.name).symlink_to(part)
    return str(home)


def publish(path: str, rows: int) -> None:
    """Publish a DataFrame that executors make and stage, in four parts."""
    frame = SparkSession.active().range(0, rows, 1, 4).select("id", f.lit(ITEM).alias("item"))
    frame.write.format("sparkqueue").option("topic", TOPIC).mode("append").save(path)


def _run(path: str, fn: Callable[[DataFrame, int, Sight], Any], **options: Any) -> Sight:
    """Run one query over the queue until nothing is left, and tell what it saw."""
    sight = Sight()

    def see(batch: DataFrame, batch_id: int) -> Any:
        return fn(batch, batch_id, sight)

    wrapper = Journal(path).queue(QUEUE).foreach_batch(see, subscription="s")
    stream = (
        SparkSession.active().readStream.format("sparkqueue").option("queue", QUEUE).option("subscription", "s").options(**options)
    )
    writer = stream.load(path).writeStream.foreachBatch(wrapper).option("checkpointLocation", f"{path}-checkpoint")
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except Exception as failure:  # noqa: BLE001  # It is told, and judged elsewhere.
        sight.failure = str(failure)
    return sight


def _note(rows: list[Any], sight: Sight) -> None:
    sight.batches.append(sorted(row["bookmark"] for row in rows))
    sight.executors.append(sorted({row["executor"] for row in rows}))
    sight.deliveries += sorted({row["delivery_count"] for row in rows})


def _with_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        executors = pa.array([os.getppid()] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([batch.column("bookmark"), batch.column("delivery_count"), executors], _NOTED)


_NOTED = ["bookmark", "delivery_count", "executor"]
_NOTED_DDL = "bookmark BIGINT, delivery_count INT, executor BIGINT"


def consume(path: str, *, max_backlog: int) -> Sight:
    """Consume everything; every tenth row is expired by name."""

    def fn(batch: DataFrame, batch_id: int, sight: Sight) -> DataFrame:
        _note(batch.select("bookmark", "delivery_count").mapInArrow(_with_executor, _NOTED_DDL).collect(), sight)
        tenth = batch.where("bookmark % 10 = 0")
        return tenth.select("bookmark", f.lit("expire").alias("outcome"), f.lit("every tenth").alias("error"))

    return _run(path, fn, maxBacklog=max_backlog, minPartitions=2)


def _fail_first_attempts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    for batch in _with_executor(batches):
        # The rows have been read when this attempt fails, so the next one reads them again.
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt of every task fails")
        yield batch


def consume_with_task_retries(path: str) -> Sight:
    """Consume everything with tasks whose first attempts fail after they have read."""

    def fn(batch: DataFrame, batch_id: int, sight: Sight) -> None:
        _note(batch.select("bookmark", "delivery_count").mapInArrow(_fail_first_attempts, _NOTED_DDL).collect(), sight)

    return _run(path, fn, minPartitions=2)


def consume_and_fail(path: str) -> Sight:
    """See a batch, then fail the query: the micro-batch runs again at the next start."""

    def fn(batch: DataFrame, batch_id: int, sight: Sight) -> None:
        _note(batch.select("bookmark", "delivery_count").mapInArrow(_with_executor, _NOTED_DDL).collect(), sight)
        raise RuntimeError("the sink is down")

    return _run(path, fn)


def consume_and_lose_an_executor(path: str, marker: str) -> Sight:
    """Consume everything; one executor is killed while it reads, by its own Python worker, once."""

    def kill_reader(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in _with_executor(batches):
            if not Path(marker).exists():
                # Most of the partition is still on its way from the reading process to this one.
                executor = psutil.Process(os.getppid()).parent()
                assert executor is not None
                Path(marker).write_text(" ".join(executor.cmdline()))
                executor.send_signal(signal.SIGKILL)
            yield batch

    def fn(batch: DataFrame, batch_id: int, sight: Sight) -> None:
        _note(batch.mapInArrow(kill_reader, _NOTED_DDL).collect(), sight)

    return _run(path, fn, minPartitions=2, maxBacklog=ROWS)
