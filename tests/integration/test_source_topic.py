"""Replaying topics and reading views through Spark: no leases, no coordinator (R8; DESIGN 7, 15.15)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_queue import Journal
from tests.integration.source_journal import COLUMNS, MakeHome, Seen, SourceJournal, orders, running, wait_until
from tests.unit.source.topic_ranges import over_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> SourceJournal:
    """Give a journal whose message type holds two topics; nothing here starts a coordinator."""
    types = {"order": {"columns": COLUMNS, "topics": ["ORDERS", "RETURNS"]}}
    journal = Journal.create(
        str(tmp_path / "journal"), {"message_types": types, "queues": {"WORK": {"underlying_topic": "ORDERS"}}}
    )
    mixed = [{**row, "topic": "RETURNS" if row["id"] % 3 == 0 else "ORDERS"} for row in orders(0, 9)]
    journal.publish(mixed)
    journal.publish(orders(9, 3), topic="ORDERS")
    return SourceJournal(journal, tmp_path / "home", spark)


def batch(home: SourceJournal, **options: Any) -> DataFrame:
    return home.spark.read.format("sparkqueue").options(**options).load(home.journal.path)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


def test_batch_read_gives_the_rows_of_one_topic_with_their_bookmarks(home: SourceJournal) -> None:
    """R8, R96: a read of the topic leases nothing, and every message has a bookmark."""
    rows = batch(home, topic="ORDERS").orderBy("bookmark").collect()
    assert [row["bookmark"] for row in rows] == [1, 2, 4, 5, 7, 8, 9, 10, 11]
    assert [row["id"] for row in rows] == [row["bookmark"] for row in rows]
    assert {row["topic"] for row in rows} == {"ORDERS"}
    assert not Path(home.journal.path, "coordinator.json").exists()


@pytest.mark.drawn(2)
@over_ranges
def test_batch_read_keeps_to_its_range(home: SourceJournal, options: dict[str, str], expected: list[int]) -> None:
    assert ids(batch(home, topic="ORDERS", **options)) == expected


def test_batch_read_prunes_and_cuts_as_asked(home: SourceJournal) -> None:
    frame = batch(home, topic="ORDERS", columns="bookmark,item", minPartitions=3)
    assert frame.columns == ["bookmark", "item"]
    assert frame.rdd.getNumPartitions() == 3
    assert frame.count() == 9


def test_bare_timestamp_is_refused_showing_both_readings(home: SourceJournal) -> None:
    with pytest.raises(Exception, match=r"TIMESTAMP_AMBIGUOUS.*2026-01-31T12:00:00\+00:00"):
        batch(home, topic="ORDERS", startingTimestamp="2026-01-31T12:00:00")


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": "ORDRES"}, "UNKNOWN_TOPIC.*Did you mean 'ORDERS'"),
        ({"queue": "WRK", "view": "messages"}, "UNKNOWN_QUEUE.*Did you mean 'WORK'"),
        ({"topic": "ORDERS", "startingBokmark": "1"}, "UNKNOWN_OPTION.*Did you mean 'startingBookmark'"),
        ({"topic": "ORDERS", "queue": "WORK"}, "CONTRADICTORY_SETTINGS"),
        ({"topic": "ORDERS", "columns": "id,itm"}, "UNKNOWN_COLUMN.*Did you mean 'item'"),
        ({"topic": "ORDERS", "storage.aws_region": "eu-1"}, "STORAGE_OPTION_UNSUPPORTED.*aws_region"),
        ({}, "MISSING_OPTION.*queue"),
    ],
)
def test_wrong_reads_are_refused_by_name_at_load(home: SourceJournal, options: dict[str, str], reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        batch(home, **options)


def test_load_of_no_journal_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="NOT_A_JOURNAL"):
        spark.read.format("sparkqueue").option("topic", "ORDERS").load(str(tmp_path))


def replay(home: SourceJournal, seen: Seen, **options: Any) -> Any:
    frame = home.spark.readStream.format("sparkqueue").options(topic="ORDERS", **options).load(home.journal.path)
    return frame.writeStream.foreachBatch(seen).option("checkpointLocation", home.checkpoint())


def test_stream_from_earliest_replays_and_goes_on_after_a_restart(home: SourceJournal) -> None:
    """R7, R8: whoever names the topic instead of the queue gets all of it."""
    seen = Seen()
    for first in (12, 15):
        replay(home, seen, startingBookmark="earliest").trigger(availableNow=True).start().awaitTermination()
        home.publish(first, 3)
    replay(home, seen, startingBookmark="earliest").trigger(availableNow=True).start().awaitTermination()
    assert seen.ids == [1, 2, 4, 5, 7, 8, 9, 10, 11, *range(12, 18)]
    assert not Path(home.journal.path, "coordinator.json").exists()


def test_stream_from_latest_gives_only_what_comes_later(home: SourceJournal) -> None:
    seen = Seen()
    with running(replay(home, seen).start()) as query:
        wait_until(lambda: bool(seen.batches), query)
        home.publish(12, 3)
        wait_until(lambda: len(seen.ids) == 3, query)
    assert seen.ids == [12, 13, 14]


def test_views_show_the_queue_now_and_at_any_past_record(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 3)
    home.run(Seen())
    now = batch(home, queue="WORK", view="status").collect()[0]
    assert (now["queue_depth"], now["acknowledged"]) == (0, 3)
    (granted,) = [row["record"] for row in home.history("granted")]
    then = batch(home, queue="WORK", recordAsOf=granted).collect()
    assert [(row["id"], row["state"]) for row in then] == [(number, "leased") for number in range(3)]
    assert batch(home, queue="WORK", view="leases", recordAsOf=granted).collect()[0]["messages"] == 3
    at = datetime.now(UTC).isoformat()
    assert batch(home, queue="WORK", timestampAsOf=at).count() == 0
    assert batch(home, view="history").where("kind = 'removed'").count() == 1
