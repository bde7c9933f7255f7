"""Payloads of no byte and of 64 MB through real Spark, out of a DataFrame and into one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from spark_queue.source.spark_versions import TELLS_COMMITTED
from tests.acceptance.conftest import MakeJournal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGE_BYTES = 64 * 1024 * 1024

DEFINITIONS = {"message_types": {"text": {"columns": "value STRING", "topics": ["TEXTS"]}}, "queues": {"TEXTS": {}}}


def test_payloads_of_no_byte_and_of_64_megabytes_go_through_spark(
    spark: SparkSession, make_journal: MakeJournal, tmp_path: Path
) -> None:
    journal = make_journal(DEFINITIONS)
    texts = spark.range(3).select(f.expr(f"repeat('x', int(id * {LARGE_BYTES // 2}))").alias("value")).coalesce(1)
    texts.write.format("sparkqueue").option("topic", "TEXTS").mode("append").save(journal.path)
    seen: list[tuple[int, str]] = []

    def fn(batch: DataFrame, batch_id: int) -> None:
        seen.extend((row["size"], row["digest"]) for row in batch.select(size, digest).collect())

    size, digest = f.length("value").alias("size"), f.md5("value").alias("digest")
    expected = [(row["size"], row["digest"]) for row in texts.select(size, digest).collect()]
    stream = spark.readStream.format("sparkqueue").options(queue="TEXTS", subscription="s").load(journal.path)
    writer = stream.writeStream.foreachBatch(journal.queue("TEXTS").foreach_batch(fn, subscription="s"))
    writer = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    # Earlier versions tell only the next run what was committed.
    for _ in range(1 if TELLS_COMMITTED else 2):
        writer.start().awaitTermination()
    assert [each for each, _ in expected] == [0, LARGE_BYTES // 2, LARGE_BYTES]
    assert seen == expected
    assert journal.queue("TEXTS").status().acknowledged == 3
