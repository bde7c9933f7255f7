"""Publishing from Spark, by batch and by stream (DESIGN 7 writer; R95)."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_queue import Journal
from tests.integration.source_journal import MakeHome, Seen, SourceJournal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows(home: SourceJournal, first: int, count: int, *, partitions: int = 2) -> DataFrame:
    frame = home.spark.range(first, first + count, numPartitions=partitions)
    return frame.selectExpr("id", "concat('item ', id) AS item")


def write(frame: DataFrame, home: SourceJournal, *, mode: str = "append", **options: Any) -> None:
    frame.write.format("sparkqueue").mode(mode).options(**options).save(home.journal.path)


def published(home: SourceJournal) -> list[int]:
    """Return the ids in queue WORK, in log order."""
    return [int(row["id"]) for row in home.journal.view("messages", queue="WORK").to_pylist()]


def versions(home: SourceJournal) -> int:
    """Count the commits of the message table."""
    return len(list(Path(home.journal.path, "messages", "order", "_delta_log").glob("*.json")))


def test_batch_write_is_one_commit_in_the_order_of_its_partitions(make_home: MakeHome) -> None:
    home = make_home()
    before = versions(home)
    write(rows(home, 0, 20, partitions=4), home, topic="ORDERS")
    assert published(home) == list(range(20))
    assert versions(home) == before + 1


def test_topics_may_come_from_the_rows(make_home: MakeHome) -> None:
    home = make_home()
    write(rows(home, 0, 3).selectExpr("id", "item", "'ORDERS' AS topic"), home)
    assert published(home) == [0, 1, 2]


def test_write_to_a_queue_s_name_goes_to_its_topic(make_home: MakeHome) -> None:
    """R62."""
    home = make_home(default_publish_target="ORDERS")
    write(rows(home, 0, 3), home, topic="WORK")
    assert published(home) == [0, 1, 2]


def test_named_publisher_drops_what_it_published_before(make_home: MakeHome) -> None:
    """R95."""
    home = make_home()
    for count in (5, 5, 8):
        write(rows(home, 1, count), home, topic="ORDERS", publisher="till", sequenceColumn="id")
    # The third batch begins as the first did, so its head is the repeat and its tail is new (DESIGN 15.5).
    assert published(home) == list(range(1, 9))


def test_transaction_of_the_user_is_published_once_as_in_delta(make_home: MakeHome) -> None:
    home = make_home()
    for version in (1, 1, 2):
        write(rows(home, 10 * version, 2), home, topic="ORDERS", txnAppId="nightly", txnVersion=version)
    assert published(home) == [10, 11, 20, 21]


NOTES = {
    "message_types": {
        "note": {
            "columns": "id BIGINT, state STRING, priority INT, error STRING, outcome STRING, reason STRING, subject STRING",
            "topics": ["NOTES"],
            "rename": {"topic": "subject", "sequence": "id"},
        }
    },
    "queues": {"WORK": {"underlying_topic": "NOTES", "priority": "priority", "filter": "state <> 'gone'"}},
}


def test_columns_have_names_that_the_queue_uses_too(make_home: MakeHome) -> None:
    """Rows come in by other names, and go through filter, priority, outcomes and views by their own."""
    home = make_home()
    journal = Journal.create(str(home.home / "notes"), NOTES)
    frame = home.spark.range(1, 5).selectExpr(
        "id AS sequence", "IF(id = 4, 'gone', 'here') AS state", "CAST(id AS INT) AS priority", "'e' AS error", "'o' AS outcome",
        "'r' AS reason", "concat('about ', id) AS TOPIC",
    )  # fmt: skip
    seen = list[Any]()

    def work(batch: DataFrame, _: int) -> DataFrame:
        seen.extend(batch.collect())
        return batch.where("id = 2").selectExpr("bookmark", "'expire' AS outcome", "'no' AS error")

    with closing(replace(home, journal=journal)) as home:
        for _ in range(2):
            write(frame, home, topic="NOTES", publisher="p", sequenceColumn="sequence")
        home.run_on(work)
        assert sorted((row.id, row.state, row.priority, row.error, row.subject, row.topic, row.sequence) for row in seen) == [
            (number, "here", number, "e", f"about {number}", "NOTES", number) for number in (1, 2, 3)
        ]
        read = home.spark.read.format("sparkqueue").option("view", "dead_letters").option("queue", "WORK").load(journal.path)
        (letter,) = read.select(*(f"{of}{name}" for name in ("reason", "error", "state") for of in ("", "message_"))).collect()
        assert tuple(letter) == ("forced_expire", "r", "no", "e", "dead", "here")
        assert journal.queue("WORK").redrive("error = 'no' AND message_error = 'e' AND outcome = 'o'").redriven == 1


def test_write_of_no_rows_publishes_nothing(make_home: MakeHome) -> None:
    home = make_home()
    before = versions(home)
    write(rows(home, 0, 0), home, topic="ORDERS")
    assert versions(home) == before


def test_write_that_fails_in_a_task_leaves_nothing_visible(make_home: MakeHome) -> None:
    home = make_home()
    before = versions(home)
    bad = rows(home, 0, 10).selectExpr("IF(id = 7, NULL, id) AS id", "item")
    with pytest.raises(Exception, match="COLUMN_TYPE_MISMATCH.*NOT NULL"):
        write(bad, home, topic="ORDERS")
    assert versions(home) == before


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("options", "mode", "reason"),
    [
        ({"topic": "ORDRES"}, "append", "UNKNOWN_TOPIC.*Did you mean 'ORDERS'"),
        ({"topic": "ORDERS"}, "overwrite", "UNSUPPORTED_WRITE.*Overwriting"),
        ({}, "append", "TOPIC_MISSING"),
        ({"topic": "ORDERS", "publisher": "till"}, "append", "SEQUENCE_MISSING"),
        ({"topic": "ORDERS", "publisher": "till", "sequenceColumn": "number"}, "append", "SEQUENCE_MISSING.*'number'"),
        ({"topic": "ORDERS", "expiresafter": "1 fortnight"}, "append", "BAD_VALUE.*expiresAfter"),
        ({"topic": "ORDERS", "queue": "WORK"}, "append", "UNKNOWN_OPTION.*'queue'"),
    ],
)
def test_wrong_writes_are_refused_by_name_before_anything_is_staged(
    make_home: MakeHome, options: dict[str, str], mode: str, reason: str
) -> None:
    home = make_home()
    with pytest.raises(Exception, match=reason):
        write(rows(home, 0, 3), home, mode=mode, **options)
    assert not list(Path(home.journal.path, "messages", "order").glob("*.parquet"))


def test_unknown_column_names_the_nearest(make_home: MakeHome) -> None:
    home = make_home()
    with pytest.raises(Exception, match="UNKNOWN_COLUMN.*'itme'.*Did you mean 'item'"):
        write(rows(home, 0, 3).withColumnRenamed("item", "itme"), home, topic="ORDERS")


def test_partition_by_is_refused_by_name(make_home: MakeHome) -> None:
    home = make_home()
    with pytest.raises(Exception, match="partition"):
        rows(home, 0, 3).write.format("sparkqueue").mode("append").option("topic", "ORDERS").partitionBy("item").save(
            home.journal.path
        )
    assert published(home) == []


def copy_stream(source: SourceJournal, target: SourceJournal, **options: Any) -> None:
    """Stream queue WORK of one journal into topic ORDERS of another, until nothing is left."""
    frame = source.stream(maxBacklog=10).select("id", "item")
    source.run_out(frame.writeStream.format("sparkqueue").options(topic="ORDERS", **options), target.journal.path)


def test_stream_write_publishes_each_micro_batch_once(make_home: MakeHome) -> None:
    source, target = make_home("source"), make_home("target")
    source.publish(0, 25)
    before = versions(target)
    copy_stream(source, target)
    assert published(target) == list(range(25))
    assert versions(target) == before + 3


def test_repeated_micro_batch_is_published_once(make_home: MakeHome) -> None:
    """Killed between the sink's commit and the commit log: the same batch comes again under the same number."""
    source, target = make_home("source"), make_home("target")
    source.publish(0, 10)
    copy_stream(source, target)
    source.forget("commits", 0)
    source.journal.queue("WORK").unsubscribe("s")
    copy_stream(source, target)
    assert published(target) == list(range(10))


def test_publisher_s_sequences_outlive_a_deleted_checkpoint(make_home: MakeHome) -> None:
    source, target = make_home("source"), make_home("target")
    source.journal.publish([{"id": number, "item": "x"} for number in range(1, 6)], topic="ORDERS")
    for subscription in ("s", "again"):
        frame = source.spark.readStream.format("sparkqueue").options(topic="ORDERS", startingBookmark="earliest")
        writer = frame.load(source.journal.path).select("id", "item").writeStream.format("sparkqueue")
        writer = writer.options(topic="ORDERS", publisher="bridge", sequenceColumn="id")
        writer.option("checkpointLocation", source.checkpoint(subscription)).trigger(availableNow=True).start(
            target.journal.path
        ).awaitTermination()
    assert published(target) == [1, 2, 3, 4, 5]


def test_complete_mode_is_refused_by_name(make_home: MakeHome) -> None:
    source, target = make_home("source"), make_home("target")
    source.publish(0, 3)
    counted = source.stream().groupBy("item").count().selectExpr("count AS id", "item")
    writer = counted.writeStream.format("sparkqueue").option("topic", "ORDERS").outputMode("complete")
    with pytest.raises(Exception, match="UNSUPPORTED_WRITE|[Cc]omplete"):
        writer.option("checkpointLocation", source.checkpoint()).start(target.journal.path).awaitTermination()
    assert published(target) == []


def test_what_was_written_is_consumed_like_any_message(make_home: MakeHome) -> None:
    home = make_home()
    write(rows(home, 0, 8), home, topic="ORDERS", expiresAfter="1h")
    seen = Seen()
    home.run(seen)
    assert seen.ids == list(range(8))
