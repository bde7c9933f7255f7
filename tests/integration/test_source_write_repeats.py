"""What counts as a repeat of a publish from Spark: what was published, and nothing else (R94, R95)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.source_journal import MakeHome, SourceJournal
from tests.integration.test_source_write import published, rows, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Source:
    """A source that only grows, the stream that publishes it, and the checkpoint of that."""

    def __init__(self, home: SourceJournal, path: Path, **options: str) -> None:
        self.home = home
        self.files = path / "source"
        self.checkpoint = path / "checkpoint"
        self.options = {"topic": "ORDERS", **options}
        home.spark.range(0).selectExpr("id").write.parquet(str(self.files))

    def grow(self, first: int, count: int) -> None:
        frame = self.home.spark.range(first, first + count, numPartitions=1)
        frame.write.mode("append").parquet(str(self.files))

    def run(self, *, item: str = "concat('item ', id)", **more: Any) -> None:
        """Publish all that is there, as a new run of the query."""
        stream = self.home.spark.readStream.schema("id BIGINT").parquet(str(self.files)).selectExpr("id", f"{item} AS item")
        writer = stream.writeStream.format("sparkqueue").options(**self.options, **more)
        if "queryName" in more:
            writer = writer.queryName(more["queryName"])
        else:
            writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start(self.home.journal.path).awaitTermination()

    def forget(self, *folders: str) -> None:
        """Take the newest entry of logs in the checkpoint away, as a power loss does."""
        for folder in folders:
            newest = max(int(path.name) for path in (self.checkpoint / folder).iterdir() if path.name.isdigit())
            (self.checkpoint / folder / str(newest)).unlink()
            (self.checkpoint / folder / f".{newest}.crc").unlink(missing_ok=True)


def test_batch_whose_commit_spark_forgot_is_published_once(make_home: MakeHome, tmp_path: Path) -> None:
    """R94: Spark runs it again, and computes its rows anew."""
    home = make_home()
    source = Source(home, tmp_path)
    anew = "concat_ws(' ', rand(), uuid(), current_timestamp())"
    source.grow(0, 5)
    source.run(item=anew)
    for _ in range(2):
        source.forget("commits")
        source.run(item=anew)
    assert sorted(published(home)) == list(range(5))
    source.grow(5, 3)
    source.run(item=anew)
    assert sorted(published(home)) == list(range(8))


def test_checkpoint_that_has_gone_back_is_refused_by_name(make_home: MakeHome, tmp_path: Path) -> None:
    """R94: of the rows of its next batch some are published, and some are not."""
    home = make_home()
    source = Source(home, tmp_path)
    source.grow(0, 5)
    source.run()
    shutil.copytree(source.checkpoint, tmp_path / "copy")
    source.grow(5, 5)
    source.run()
    shutil.rmtree(source.checkpoint)
    (tmp_path / "copy").rename(source.checkpoint)
    source.grow(10, 5)
    with pytest.raises(Exception, match="CHECKPOINT_BEHIND.*batch 1 to"):
        source.run()
    assert sorted(published(home)) == list(range(10))


def test_checkpoint_that_has_gone_back_loses_no_numbered_row(make_home: MakeHome, tmp_path: Path) -> None:
    """R95: their numbers tell which of them are new."""
    home = make_home()
    source = Source(home, tmp_path, publisher="p", sequenceColumn="id")
    # Of one batch Spark reads larger files first, and numbers have to ascend.
    for first, count in ((1, 5), (6, 400)):
        source.grow(first, count)
        source.run()
    source.forget("offsets", "commits")
    source.grow(406, 5)
    source.run()
    source.grow(411, 2)
    source.run()
    assert sorted(published(home)) == list(range(1, 413))


def test_checkpoint_in_spark_s_default_place_is_found(make_home: MakeHome, tmp_path: Path) -> None:
    """R94: Spark's settings name its place, and the query's name the rest."""
    home = make_home()
    source = Source(home, tmp_path)
    source.checkpoint = tmp_path / "default" / "named"
    home.spark.conf.set("spark.sql.streaming.checkpointLocation", str(source.checkpoint.parent))
    try:
        source.grow(0, 5)
        source.run(queryName="named", item="cast(rand() AS STRING)")
        source.forget("commits")
        source.run(queryName="named", item="cast(rand() AS STRING)")
        assert sorted(published(home)) == list(range(5))
        source.forget("offsets", "commits")
        source.grow(5, 5)
        with pytest.raises(Exception, match="CHECKPOINT_BEHIND"):
            source.run(queryName="named")
    finally:
        home.spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert sorted(published(home)) == list(range(5))


def test_one_number_for_each_topic(make_home: MakeHome) -> None:
    """R94: what Delta's users do in a batch function that writes to several places."""
    home = make_home(underlying_topic="^(ORDERS|RETURNS)$", default_publish_target="ORDERS")
    for first, topic in ((0, "ORDERS"), (3, "RETURNS"), (0, "ORDERS"), (3, "RETURNS")):
        write(rows(home, first, 3), home, topic=topic, txnAppId="fan-out", txnVersion=0)
    assert published(home) == list(range(6))


def test_write_under_a_used_number_is_compared(make_home: MakeHome) -> None:
    """R94: an honest repeat may have another time and other random numbers, and another write has other rows."""
    home = make_home()

    def run(frame: DataFrame, **options: Any) -> None:
        write(frame, home, topic="ORDERS", txnAppId="job", txnVersion=5, **options)

    run(rows(home, 0, 4))
    run(rows(home, 0, 4, partitions=1).orderBy("id", ascending=False))
    for other in (rows(home, 4, 4), rows(home, 0, 5), rows(home, 0, 3)):
        with pytest.raises(Exception, match="TRANSACTION_USED.*txnVersion 5 of txnAppId 'job'.*with other rows"):
            run(other)
    run(rows(home, 0, 5), txnCompare="version")
    assert published(home) == list(range(4))


def test_intervals_of_any_order_have_an_id_each(make_home: MakeHome) -> None:
    """R94: a day that runs after a later one, as a backfill does."""
    home = make_home()
    for day in (2, 3):
        write(rows(home, 10 * day, 2), home, topic="ORDERS", txnAppId="daily", txnVersion=day)
    with pytest.raises(Exception, match="TRANSACTION_USED.*txnVersion 1 of txnAppId 'daily'"):
        write(rows(home, 10, 2), home, topic="ORDERS", txnAppId="daily", txnVersion=1)
    for _ in range(2):
        write(rows(home, 10, 2), home, topic="ORDERS", txnAppId="daily-1", txnVersion=1)
    assert published(home) == [20, 21, 30, 31, 10, 11]
