"""The stream of a queue on real Spark, with real coordinators: triggers, restarts, checkpoints (DESIGN 7)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from tests.integration.source_journal import MakeHome, Seen, SourceJournal, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def start_unproven(home: SourceJournal, fn: Callable[..., Any]) -> None:
    """Run one batch that Spark commits and nobody proves: the trigger asks no more, and no listener hears of it."""
    unheard = home.wrapped(fn)
    unheard._listen = lambda *_: None  # type: ignore[attr-defined]  # What a wrapper on a Connect server does.
    writer = home.stream().writeStream.foreachBatch(unheard).option("checkpointLocation", home.checkpoint())
    writer.trigger(once=True).start().awaitTermination()


def test_available_now_reads_everything_once_and_acknowledges_it(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 250)
    seen = Seen()
    home.run_on(seen, options={"maxBacklog": 100})
    assert [len(ids) for _, ids in seen.batches] == [100, 100, 50]
    assert seen.ids == list(range(250))
    assert home.figures() == (0, 0, 250)


@pytest.mark.since_4_2
def test_available_now_leaves_later_messages_to_the_next_run(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 10)
    seen = Seen()

    def publish_meanwhile(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        home.publish(100 + batch_id, 1)

    home.run(publish_meanwhile, options={"maxBacklog": 5})
    assert seen.ids == list(range(10))
    assert home.figures() == (2, 0, 10)


def test_processing_time_takes_messages_as_they_come(make_home: MakeHome) -> None:
    home = make_home()
    seen = Seen()
    with running(home.start(seen, trigger={"processingTime": "50 milliseconds"})) as query:
        for end in (10, 20, 30):
            home.publish(end - 10, 10)
            wait_until(partial(_has_seen, seen, end), query)
        wait_until(lambda: home.figures() == (0, 0, 30), query)
    assert seen.ids == list(range(30))


def _has_seen(seen: Seen, count: int) -> bool:
    return len(seen.ids) == count


def test_once_takes_one_batch_and_its_proof_is_heard_at_the_end(make_home: MakeHome) -> None:
    """DESIGN 7: after Trigger.Once Spark calls the source no more; the listener proves the batch."""
    home = make_home()
    home.publish(0, 30)
    seen = Seen()

    def and_creates_something(batch: DataFrame, batch_id: int) -> None:
        """For pyspark the batch's copy of a session is then the active one of the process, for whatever comes after."""
        seen(batch, batch_id)
        batch.sparkSession.createDataFrame([(1,)], "a INT").collect()

    home.start(and_creates_something, trigger={"once": True}, options={"maxBacklog": 20}).awaitTermination()
    wait_until(lambda: home.figures() == (10, 0, 20))
    home.start(seen, trigger={"once": True}).awaitTermination()
    wait_until(lambda: home.figures() == (0, 0, 30))
    assert seen.ids == list(range(30))


def test_empty_queue_at_first_start_waits_for_messages(make_home: MakeHome) -> None:
    """DESIGN 7: batch 0 is always built, here without a lease, and has nothing for the function."""
    home = make_home()
    seen = Seen()
    with running(home.start(seen)) as query:
        wait_until(lambda: bool(query.recentProgress), query)
        assert (query.recentProgress[0]["batchId"], seen.batches) == (0, [])
        home.publish(0, 5)
        wait_until(lambda: len(seen.ids) == 5, query)
    assert seen.batches == [(1, [0, 1, 2, 3, 4])]


def test_stop_in_a_long_poll_leaves_at_once_and_holds_nothing(make_home: MakeHome) -> None:
    home = make_home()
    seen = Seen()
    with running(home.start(seen)) as query:
        wait_until(lambda: bool(query.recentProgress), query)
    wait_until(lambda: len(home.history("left")) == 1)
    assert home.figures() == (0, 0, 0)


@pytest.mark.since_4_2
def test_progress_tells_how_full_the_queue_is(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 30)
    query = home.start(Seen(), trigger={"availableNow": True}, options={"maxBacklog": 20})
    query.awaitTermination()
    told = json.loads(query.recentProgress[0]["sources"][0]["latestOffset"].replace("'", '"'))
    assert (told["queue_depth"], told["available"], told["backlog"], told["alarm"]) == (30, 10, 20, None)


def test_batch_whose_commit_was_lost_runs_again_with_the_same_rows(make_home: MakeHome) -> None:
    """Restart between the offset log and the commit log: `partitions` comes first and resumes the lease (P2)."""
    home = make_home()
    home.publish(0, 10)
    seen = Seen()
    start_unproven(home, seen)
    home.forget("commits", 0)
    home.publish(10, 5)
    home.run_on(seen)
    assert seen.batches == [(0, list(range(10))), (0, list(range(10))), (1, list(range(10, 15)))]
    assert len(home.history("resumed")) == 1
    assert home.figures() == (0, 0, 15)


def test_batch_function_that_raises_fails_the_query_and_its_rows_come_again(make_home: MakeHome) -> None:
    """R42: what raises is not acknowledged."""
    home = make_home()
    home.publish(0, 10)
    seen = Seen()

    def fail_once(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        if len(seen.batches) == 1:
            raise RuntimeError("the sink is down")

    with pytest.raises(Exception, match="the sink is down"):
        home.run(fail_once)
    home.run_on(fail_once)
    assert seen.batches[0] == (0, list(range(10)))
    assert sorted(number for _, ids in seen.batches[1:] for number in ids) == list(range(10))
    assert home.figures() == (0, 0, 10)


def test_batch_that_spark_has_committed_is_not_run_again_though_nobody_proved_it(make_home: MakeHome) -> None:
    """Skipped commit(): the commit log alone proves the batch, at the next start (DESIGN 7)."""
    home = make_home()
    home.publish(0, 10)
    seen = Seen()
    start_unproven(home, seen)
    assert home.figures() == (0, 10, 0)
    home.run(seen)
    assert seen.ids == list(range(10))
    assert home.figures() == (0, 0, 10)


def test_union_of_one_stream_sees_rows_twice_and_settles_them_once(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 5)
    frame = home.stream()
    seen = Seen()
    writer = frame.union(frame).writeStream.foreachBatch(home.wrapped(seen)).option("checkpointLocation", home.checkpoint())
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(seen.ids) == sorted([*range(5), *range(5)])
    # An older Spark takes it for one batch, which only the listener proves.
    wait_until(lambda: home.figures() == (0, 0, 5))


def test_self_join_is_refused_by_name(make_home: MakeHome) -> None:
    """Two planners under one subscription name: the newer wins, the older is told (P1)."""
    home = make_home()
    home.publish(0, 5)
    frame = home.stream()
    joined = frame.alias("a").join(frame.alias("b"), "id").select("id")
    writer = joined.writeStream.foreachBatch(lambda batch, batch_id: None).option("checkpointLocation", home.checkpoint())
    with pytest.raises(Exception, match="SUBSCRIPTION_TAKEN.*join inside foreachBatch"):
        writer.start().awaitTermination()
    assert home.figures()[2] == 0


def test_second_query_of_a_subscription_takes_it_over_and_the_first_is_told(make_home: MakeHome) -> None:
    home = make_home()
    seen = Seen()
    first = home.start(seen)
    wait_until(lambda: bool(first.recentProgress), first)
    with running(home.start(seen, checkpoint="other")), pytest.raises(Exception, match="SUBSCRIPTION_TAKEN"):
        first.awaitTermination()


def test_two_subscriptions_share_a_queue(make_home: MakeHome) -> None:
    """R14, R28: each message goes to one of them, and each works on many at once."""
    home = make_home()
    home.publish(0, 40)
    seen = {"one": Seen(), "other": Seen()}
    with ExitStack() as queries:
        for name, fn in seen.items():
            options = {"subscription": name, "maxBacklog": 10}
            queries.enter_context(running(home.start(fn, checkpoint=name, subscription=name, options=options)))
        wait_until(lambda: home.figures() == (0, 0, 40))
    assert sorted(seen["one"].ids + seen["other"].ids) == list(range(40))


def test_checkpoint_that_was_deleted_costs_nothing(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 10)
    seen = Seen()
    home.run(seen)
    shutil.rmtree(home.checkpoint())
    home.publish(10, 5)
    home.run(seen)
    assert seen.ids == list(range(15))
    assert home.figures() == (0, 0, 15)


def test_checkpoint_that_was_rolled_back_loses_and_repeats_nothing(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 10)
    seen = Seen()
    home.run_on(seen, options={"maxBacklog": 5})
    home.forget("offsets", 1)
    home.forget("commits", 1)
    home.publish(10, 5)
    home.run_on(seen, options={"maxBacklog": 5})
    assert sorted(seen.ids) == list(range(15))
    assert home.figures() == (0, 0, 15)


def test_checkpoint_of_another_queue_is_refused_by_name_and_acknowledges_nothing(make_home: MakeHome) -> None:
    first, second = make_home("first"), make_home("second")
    for home in (first, second):
        home.publish(0, 10)
    first.run(Seen())
    shutil.copytree(first.checkpoint(), second.checkpoint())
    with pytest.raises(Exception, match="CHECKPOINT_FOREIGN"):
        second.run(Seen())
    assert second.figures() == (10, 0, 0)


def test_checkpoint_of_a_journal_that_was_restored_is_refused_by_name(make_home: MakeHome, tmp_path: Path) -> None:
    """A lease above the counter acknowledges nothing."""
    home = make_home()
    home.publish(0, 10)
    home.close()
    shutil.copytree(home.journal.path, tmp_path / "backup")
    home.run(Seen())
    home.close()
    shutil.rmtree(home.journal.path)
    shutil.copytree(tmp_path / "backup", home.journal.path)
    with pytest.raises(Exception, match="CHECKPOINT_FOREIGN"):
        home.run(Seen())
    assert home.figures() == (10, 0, 0)


@pytest.mark.delta
def test_plain_sink_needs_no_wrapper(make_home: MakeHome, tmp_path: Path) -> None:
    """R42, R44: the batch that Spark has committed is acknowledged as one."""
    home = make_home()
    home.publish(0, 30)
    sink = str(tmp_path / "sink")
    writer = home.stream(maxBacklog=10).writeStream.format("delta").option("checkpointLocation", home.checkpoint())
    # A Spark before 4.2 takes one batch each time, and says of the last one nothing.
    for _ in range(3):
        writer.trigger(availableNow=True).start(sink).awaitTermination()
    home.journal.prove(home.checkpoint())
    booked = home.spark.read.format("delta").load(sink).select("id")
    assert_df_equality(booked, home.spark.range(30), ignore_nullable=True, ignore_row_order=True)
    assert home.figures() == (0, 0, 30)


def test_columns_and_partitions_are_as_asked(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 12)
    shapes: list[tuple[list[str], int]] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        shapes.append((batch.columns, batch.rdd.getNumPartitions()))

    home.run(note, options={"columns": "bookmark,id", "minPartitions": 3})
    assert shapes == [(["bookmark", "id"], 3)]


def test_envelope_tells_what_the_lease_knows(make_home: MakeHome) -> None:
    """R18: the end of the lease comes with each message."""
    home = make_home(lease_period="45s")
    home.publish(0, 2)
    rows: list[dict[str, Any]] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        rows.extend(row.asDict() for row in batch.collect())

    home.run(note)
    assert [row["bookmark"] for row in rows] == [0, 1]
    assert {(row["topic"], row["delivery_count"], row["cancel_count"], row["lease"], row["is_barrier"]) for row in rows} == {
        ("ORDERS", 1, 0, 1, False)
    }
    assert all(row["leased_until"] > row["published_at"] and row["expires_at"] is None for row in rows)
