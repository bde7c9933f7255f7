"""Batches whose rows and acknowledgement are one commit of a Delta table, on real Spark (R123 to R127, DESIGN 19)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from spark_queue.core import commands
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.sinks.table import SinkTable
from spark_queue.sinks.topic import SinkTopic
from spark_queue.source.far_checkpoint import checkpoint_of
from tests.integration.source_journal import MakeHome, SourceJournal, definitions, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MESSAGES = 24
PER_BATCH = 4


def sink(home: SourceJournal) -> str:
    return str(home.home / "booked")


def into(home: SourceJournal, fn: Callable[..., Any] | None = None, *, path: str | None = None, **given: Any) -> Any:
    return home.journal.queue("WORK").into(path or sink(home), fn, subscription=given.pop("subscription", "s"), **given)


def run(home: SourceJournal, fn: Callable[..., Any] | None = None, *, options: dict[str, Any] | None = None, **given: Any) -> None:
    """Consume until nothing is left, and raise what the query raised."""
    home.run_out(home.stream(**(options or {})).writeStream.foreachBatch(into(home, fn, **given)))


def ids(home: SourceJournal, path: str | None = None) -> list[int]:
    """Return what stands in the table, by a reader that has nothing to do with us."""
    return sorted(row["id"] for row in DeltaTable(path or sink(home)).to_pyarrow_table().to_pylist())


def booked(batch: DataFrame, batch_id: int) -> DataFrame:
    return batch.select("id", "item")


@pytest.mark.delta
def test_rows_and_their_acknowledgement_are_one_commit(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, MESSAGES)
    run(home, booked, options={"maxBacklog": PER_BATCH})
    assert ids(home) == list(range(MESSAGES))
    assert home.figures() == (0, 0, MESSAGES)
    table = DeltaTable(sink(home))
    transaction = f"sparkqueue:{home.journal.journal_id()}:WORK:s"
    assert table.transaction_version(transaction) == 2 * MESSAGES // PER_BATCH
    assert home.spark.read.format("delta").load(sink(home)).where("id >= 20").count() == 4
    commits = home.journal.view("sink_commits", queue="WORK").to_pylist()
    assert [(row["attempt"], row["state"], row["messages"], row["version"]) for row in commits] == [
        (number, "landed", PER_BATCH, number) for number in range(MESSAGES // PER_BATCH, 0, -1)
    ]
    assert {(row["subscription"], row["sink"]) for row in commits} == {("s", sink(home))}


def test_exceptions_do_not_stand_in_the_table(make_home: MakeHome) -> None:
    from pyspark.sql import functions as f

    home = make_home()
    home.publish(0, 8)

    def without_odd(batch: DataFrame, batch_id: int) -> tuple[DataFrame | None, DataFrame]:
        left_out = batch.where("id % 2 = 1").select("bookmark", f.lit("expire").alias("outcome"), f.lit("odd").alias("error"))
        return None, left_out

    run(home, without_odd)
    assert ids(home) == [0, 2, 4, 6]
    assert {"bookmark", "topic", "id"} <= set(DeltaTable(sink(home)).to_pyarrow_table().column_names)
    assert [letter["id"] for letter in home.journal.view("dead_letters", queue="WORK").to_pylist()] == [1, 3, 5, 7]


@pytest.mark.since_4_2
def test_rows_of_a_batch_without_messages_are_refused_by_name(make_home: MakeHome) -> None:
    """They come from the state of the query: nothing could tell whether they stand in the table already."""
    home = make_home()
    home.publish(0, MESSAGES)
    counted = home.stream().selectExpr("timestamp_seconds(id * 3600) AS at").withWatermark("at", "1 second").groupBy("at").count()
    with pytest.raises(StreamingQueryException, match="OUTCOME_INVALID.*no new messages, but rows from the state"):
        home.run_out(counted.writeStream.outputMode("append").foreachBatch(into(home, lambda batch, _: batch)))
    assert DeltaTable(sink(home)).to_pyarrow_table().num_rows == 0


class Harm:
    """Raises once at one of the points between which a consumer may die."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, point: str, sink: Any = SinkTable) -> None:
        self._left = 1
        place: Any = sink if point != "said" else None
        if place is None:
            from spark_queue.source import into as module

            say = module._say

            def unsaid(*given: Any, **more: Any) -> None:
                self.strike()
                say(*given, **more)

            monkeypatch.setattr(module, "_say", unsaid)
            return
        append = sink.append

        def harmed(table: Any, *given: Any, **more: Any) -> Any:
            if point == "prepared":
                self.strike()
            landing = append(table, *given, **more)
            if point == "committed":
                self.strike()
            return landing

        monkeypatch.setattr(sink, "append", harmed)

    def strike(self) -> None:
        if self._left:
            self._left -= 1
            # The one error after which a consumer does not find out by itself.
            raise JournalError("SINK_FAILED", table="", reason="the consumer died.")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("point", ["prepared", "committed", "said"])
def test_a_consumer_that_dies_between_prepare_commit_and_word_of_it_loses_and_doubles_nothing(
    make_home: MakeHome, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    home = make_home()
    home.publish(0, MESSAGES)
    Harm(monkeypatch, point)
    with pytest.raises(StreamingQueryException, match="the consumer died"):
        run(home, booked, options={"maxBacklog": PER_BATCH})
    (doubted,) = home.journal.queue("WORK").attempts_in_doubt()
    assert (doubted.table, doubted.attempt) == (sink(home), 1)
    run(home, booked, options={"maxBacklog": PER_BATCH})
    assert ids(home) == list(range(MESSAGES))
    assert home.figures() == (0, 0, MESSAGES)
    assert home.journal.queue("WORK").attempts_in_doubt() == ()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("point", ["prepared", "committed"])
def test_a_stream_that_is_given_another_sink_decides_first_what_it_left_in_doubt_at_the_old_one(
    make_home: MakeHome, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """R125: its messages stand in one of the two, never in both or neither."""
    home = make_home()
    home.publish(0, 8)
    Harm(monkeypatch, point)
    with pytest.raises(StreamingQueryException, match="the consumer died"):
        run(home, booked, options={"maxBacklog": PER_BATCH})
    other = str(home.home / "elsewhere")
    run(home, booked, options={"maxBacklog": PER_BATCH}, path=other)
    landed = {"prepared": [], "committed": [0, 1, 2, 3]}[point]
    assert (ids(home), ids(home, other)) == (landed, [each for each in range(8) if each not in landed])
    assert home.figures() == (0, 0, 8)


def test_two_consumers_into_one_table_while_one_of_them_is_gone_for_good(
    make_home: MakeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R125: what the one left in doubt, the other decides before a batch of its own, once the lease is past due."""
    home = make_home(lease_period="2s")
    home.publish(0, MESSAGES)
    Harm(monkeypatch, "prepared")
    with pytest.raises(StreamingQueryException, match="the consumer died"):
        run(home, booked, options={"maxBacklog": PER_BATCH})
    writer = home.stream(subscription="other", maxBacklog=PER_BATCH).writeStream.foreachBatch(
        into(home, booked, subscription="other")
    )
    with running(writer.option("checkpointLocation", home.checkpoint("other")).start()) as query:
        assert checkpoint_of(home.spark, str(query.id)).endswith(home.checkpoint("other"))
        wait_until(lambda: (home.journal.queue("WORK").status().age_of_oldest_lease or 4) > 3, query)
        home.publish(MESSAGES, 1)
        wait_until(lambda: home.figures() == (0, 0, MESSAGES + 1), query)
    assert ids(home) == list(range(MESSAGES + 1))


@pytest.mark.delta
def test_a_table_that_cannot_be_appended_to_is_refused_before_the_stream_starts(make_home: MakeHome) -> None:
    home = make_home()
    with pytest.raises(SparkQueueError, match="SINK_IN_JOURNAL"):
        into(home, path=f"{home.journal.path}/booked")
    path = sink(home)
    home.spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    with pytest.raises(SparkQueueError, match="SINK_FEATURE_UNSUPPORTED.*row"):
        into(home)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("made", "select", "text"),
    [
        ("id INT", "id", "column 'id' is BIGINT in the rows and INT in the table"),
        ("id BIGINT", "id, item", "it has no column 'item'"),
        ("id BIGINT, at DATE NOT NULL", "id", "the rows lack column 'at'"),
        (None, "id, id AS ID", "column 'id' twice"),
        (None, "id, NULL AS nothing", "column 'nothing' is void"),
    ],
)
@pytest.mark.delta
def test_rows_of_another_schema_are_refused_by_name(make_home: MakeHome, made: str | None, select: str, text: str) -> None:
    home = make_home()
    home.publish(0, 4)
    if made is not None:
        home.spark.sql(f"CREATE TABLE delta.`{sink(home)}` ({made}) USING delta")
    with pytest.raises(StreamingQueryException, match=f"SINK_SCHEMA_DIFFERS.*{text}"):
        run(home, lambda batch, _: batch.selectExpr(*select.split(", ")))
    assert Counter(path.suffix for path in Path(sink(home)).glob("*.parquet")) == {}
    assert home.figures()[2] == 0


def test_columns_are_added_where_that_is_asked_for(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 2)
    run(home, lambda batch, _: batch.select("id"))
    home.publish(2, 2)
    run(home, booked, merge_schema=True)
    rows = DeltaTable(sink(home)).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["item"]) for row in rows) == [(0, None), (1, None), (2, "item 2"), (3, "item 3")]


@pytest.mark.delta
def test_a_partitioned_table_is_split_by_its_values(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 6)
    run(home, lambda batch, _: batch.selectExpr("id", "id % 3 AS third"), partition_by=["third"])
    assert DeltaTable(sink(home)).metadata().partition_columns == ["third"]
    spark_reads = home.spark.read.format("delta").load(sink(home)).where("third = 2").select("id").collect()
    assert sorted(row["id"] for row in spark_reads) == [2, 5]


def test_a_batch_of_another_query_cannot_pass_for_an_earlier_attempt(make_home: MakeHome) -> None:
    """R124: whatever the table's transaction id was raised to, the next attempt's number is above it."""
    home = make_home()
    home.publish(0, 4)
    run(home, booked)
    table = SinkTable(sink(home), {})
    transaction = f"sparkqueue:{home.journal.journal_id()}:WORK:s"
    table.fence(transaction=transaction, attempt=9)
    home.publish(4, 4)
    run(home, booked)
    assert ids(home) == list(range(8))
    assert table.transaction_version(transaction) == 20


def test_what_is_set_by_force_is_believed(make_home: MakeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """R125: an attempt that somebody fenced by force is not committed any more under its number."""
    home = make_home()
    home.publish(0, 4)
    Harm(monkeypatch, "prepared")
    with pytest.raises(StreamingQueryException):
        run(home, booked)
    queue = home.journal.queue("WORK")
    (doubted,) = queue.attempts_in_doubt()
    # A table that can be read decides by itself.
    table, away = Path(sink(home)), home.home / "away"
    table.rename(away)
    queue.decide(doubted, landed=False)
    away.rename(table)
    run(home, booked)
    assert ids(home) == [0, 1, 2, 3]
    assert commands.Fenced.__name__.lower() in {row["kind"] for row in home.journal.view("history").to_pylist()}


def with_topic(make_home: MakeHome) -> SourceJournal:
    """Make a journal that has a second message type, whose topic batches are published to, and a queue of it."""
    home = make_home()
    more = {"message_types": {"booked": {"columns": "id BIGINT, item STRING", "topics": ["BOOKED"]}}}
    queues = {"WORK": {"underlying_topic": "ORDERS"}, "B": {"underlying_topic": "BOOKED"}}
    home.journal.apply({"message_types": {**definitions()["message_types"], **more["message_types"]}, "queues": queues})
    return home


def publish(home: SourceJournal, fn: Callable[..., Any] | None = None) -> None:
    """Consume into the topic until nothing is left."""
    wrapped = home.journal.queue("WORK").into(topic="BOOKED", fn=fn, subscription="s")
    home.run_out(home.stream(maxBacklog=PER_BATCH).writeStream.foreachBatch(wrapped))


def published(home: SourceJournal) -> list[int]:
    return sorted(row["id"] for row in home.journal.view("messages", queue="B").to_pylist())


@pytest.mark.drawn(1)
@pytest.mark.parametrize("point", [None, "prepared", "committed", "said"])
def test_what_a_batch_gives_is_published_by_the_commit_that_acknowledges_it(
    make_home: MakeHome, monkeypatch: pytest.MonkeyPatch, point: str | None
) -> None:
    """A topic of the journal takes batches as a table does, wherever the consumer dies."""
    home = with_topic(make_home)
    home.publish(0, MESSAGES)
    if point is not None:
        Harm(monkeypatch, point, SinkTopic)
        with pytest.raises(StreamingQueryException, match="the consumer died"):
            publish(home, booked)
    publish(home, booked)
    assert home.figures() == (0, 0, MESSAGES)
    assert published(home) == list(range(MESSAGES))


def test_a_topic_takes_the_columns_that_it_has_and_no_others(make_home: MakeHome) -> None:
    home = with_topic(make_home)
    home.publish(0, 4)
    publish(home)
    assert published(home) == [0, 1, 2, 3]
    home.publish(4, 1)
    with pytest.raises(StreamingQueryException, match="UNKNOWN_COLUMN"):
        publish(home, lambda batch, _: batch.select("id", "bookmark"))
    assert published(home) == [0, 1, 2, 3]


def test_a_batch_without_rows_is_acknowledged_by_a_commit_without_messages(make_home: MakeHome) -> None:
    home = with_topic(make_home)
    home.publish(0, 4)
    publish(home, lambda batch, _: batch.select("id").where("id < 0"))
    assert (home.figures(), published(home)) == ((0, 0, 4), [])


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "BAD_VALUE"), ({"table": "/tmp/x", "topic": "BOOKED"}, "BAD_VALUE"), ({"topic": "NOWHERE"}, "UNKNOWN_TOPIC"),
        ({"topic": "BOOKED", "partition_by": ["id"]}, "BAD_VALUE"), ({"topic": "BOOKED", "merge_schema": True}, "BAD_VALUE"),
    ],
)  # fmt: skip
def test_a_sink_is_a_table_or_a_topic(make_home: MakeHome, given: dict[str, Any], code: str) -> None:
    home = with_topic(make_home)
    with pytest.raises(SparkQueueError, match=code):
        home.journal.queue("WORK").into(subscription="s", **given)
