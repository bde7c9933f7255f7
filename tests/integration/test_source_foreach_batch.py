"""What a batch function may say, and when it takes effect (DESIGN 7 foreachBatch, 15.1; P4, P6)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import StreamingQueryException

from spark_queue.client.proving import ProvenLease
from spark_queue.source.proof_listener import ProofListener
from tests.integration.source_journal import MakeHome, Seen, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def test_outcomes_of_rows_take_effect_and_the_rest_is_acknowledged(make_home: MakeHome) -> None:
    """R39, R43, R46: the function says what is not done; the rest is acknowledged."""
    from pyspark.sql import functions as f

    home = make_home()
    home.publish(0, 10)
    deliveries: dict[int, int] = {}

    def book(batch: DataFrame, batch_id: int) -> DataFrame | None:
        deliveries.update({row["id"]: row["delivery_count"] for row in batch.collect()})
        bad = batch.where("id % 5 = 0 and delivery_count = 1")
        outcome = f.when(f.col("id") == 0, "expire").otherwise("cancel")
        return bad.select("bookmark", outcome.alias("outcome"), f.lit("no price").alias("error"))

    home.run(book)
    assert home.figures() == (1, 0, 8)
    home.run(book)
    assert home.figures() == (0, 0, 9)
    assert deliveries == {**dict.fromkeys(range(10), 1), 5: 2}
    (letter,) = home.journal.view("dead_letters", queue="WORK").to_pylist()
    assert (letter["id"], letter["reason"], letter["error"]) == (0, "forced_expire", "no price")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("form", ["interval", "text", "pandas"])
def test_cancel_with_retry_after_delays_the_next_delivery(make_home: MakeHome, form: str) -> None:
    from pyspark.sql import functions as f

    home = make_home()
    home.publish(0, 2)

    def later(batch: DataFrame, batch_id: int) -> Any:
        outcomes = batch.select("bookmark", f.lit("cancel").alias("outcome"))
        outcomes = outcomes.withColumn("retry_after", f.expr("INTERVAL 1 HOUR" if form == "interval" else "'1h'"))
        return outcomes.toPandas() if form == "pandas" else outcomes

    home.run(later)
    assert home.journal.queue("WORK").status().delayed == 2


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("SELECT 99 AS bookmark, 'expire' AS outcome", "UNKNOWN_BOOKMARK.*first 99"),
        (
            "SELECT * FROM VALUES (0, 'expire'), (0, 'cancel') AS t(bookmark, outcome)",
            "OUTCOME_INVALID.*bookmark 0 has two outcomes",
        ),
        ("SELECT 0 AS bookmark", "OUTCOME_INVALID.*no column 'outcome'"),
    ],
)
@pytest.mark.parametrize("on_error", ["fail", "cancel"])
def test_misspoken_outcomes_fail_the_query_before_anything_is_settled(
    make_home: MakeHome, expression: str, reason: str, on_error: str
) -> None:
    home = make_home()
    home.publish(0, 4)
    with pytest.raises(Exception, match=reason):
        home.run(lambda batch, batch_id: batch.sparkSession.sql(expression), on_error=on_error)
    assert home.figures()[2] == 0
    assert home.history("removed") == []


def test_sys_exit_in_fn_fails_the_query_by_name(make_home: MakeHome) -> None:
    """The thread that Spark waits for must answer, or the query hangs and its messages stay leased."""
    home = make_home()
    home.publish(0, 4)
    with pytest.raises(Exception, match="BATCH_FUNCTION_ENDED.*SystemExit: 3"):
        home.run(lambda batch, batch_id: sys.exit(3))
    assert home.figures()[2] == 0


def test_on_error_cancel_gives_the_batch_back_and_the_query_lives_on(make_home: MakeHome) -> None:
    """R42, R45: an exception is a cancel, told at once."""
    home = make_home()
    home.publish(0, 6)
    seen = Seen()

    def fail_first(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        if len(seen.batches) == 1:
            raise ValueError("the sink is down")

    with running(home.start(fail_first, on_error="cancel")) as query:
        wait_until(lambda: home.figures() == (0, 0, 6), query)
    # What fails is searched by halves, also where nothing is bad any more: what succeeds leaves the fault to the rest.
    assert [ids for _, ids in seen.batches] == [list(range(6)), [0, 1, 2], [3], [4], [5]]
    assert any("the sink is down" in row["detail"] for row in home.history("outcomes"))


def test_outcomes_wait_for_the_proof_so_that_a_rerun_sees_the_same_rows(make_home: MakeHome) -> None:
    """P4, P5: what a batch said does not shrink its re-run."""
    home = make_home()
    home.publish(0, 6)
    during: list[tuple[int, int, int]] = []

    def look(batch: DataFrame, batch_id: int) -> None:
        during.append(home.figures())

    home.run(look)
    assert during == [(0, 6, 0)]
    assert home.figures() == (0, 0, 6)


def test_a_commit_is_heard_of_before_the_query_looks_for_more(make_home: MakeHome) -> None:
    """R44: a listener tells of it."""
    home = make_home()
    home.publish(0, 10)
    with running(home.start(Seen(), trigger={"processingTime": "1 hour"})) as query:
        wait_until(lambda: home.figures() == (0, 0, 10), query)


def test_a_checkpoint_proves_the_last_batch_of_a_query_that_could_not_say_so(
    make_home: MakeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R44: a query that ends between Spark's commit and its next look for messages has told nobody."""
    home = make_home()
    home.publish(0, 10)
    monkeypatch.setattr(ProofListener, "hear", lambda *_: None)
    with running(home.start(Seen(), trigger={"processingTime": "1 hour"})) as query:
        wait_until((Path(home.checkpoint()) / "commits" / "0").is_file, query)
    assert home.figures() == (0, 10, 0)
    expected = ProvenLease(queue="WORK", subscription="s", lease=1, messages=10)
    assert home.journal.prove(home.checkpoint()) == [expected]
    assert home.figures() == (0, 0, 10)
    # What was planned and not committed is no proof.
    home.publish(10, 1)
    with pytest.raises(StreamingQueryException, match="no sink"):
        home.run(failing)
    assert home.journal.prove(home.checkpoint()) == [replace(expected, messages=0, was_proven=True)]
    assert home.figures()[2] == 10


def failing(batch: DataFrame, batch_id: int) -> None:
    raise OSError("no sink")


def test_ack_early_settles_when_fn_returns(make_home: MakeHome) -> None:
    """A restart without duplicates, for stateless jobs: the re-run of a settled lease reads nothing."""
    home = make_home()
    home.publish(0, 6)
    seen = Seen()
    wrapped = home.wrapped(seen, ack_early=True)
    after: list[tuple[int, int, int]] = []

    def and_look(batch: DataFrame, batch_id: int) -> None:
        wrapped(batch, batch_id)
        after.append(home.figures())
        if len(after) == 1:
            raise RuntimeError("killed before the commit log")

    writer = home.stream().writeStream.foreachBatch(and_look).option("checkpointLocation", home.checkpoint())
    with pytest.raises(Exception, match="killed before the commit log"):
        writer.trigger(availableNow=True).start().awaitTermination()
    writer.trigger(availableNow=True).start().awaitTermination()
    assert after[0] == (0, 0, 6)
    assert seen.ids == list(range(6))


def test_explicit_mode_leaves_settling_to_the_caller(make_home: MakeHome) -> None:
    """R36, R46: dESIGN 15.1: a proof acknowledges nothing there; rows left alone stay leased until the lease ends."""
    home = make_home()
    home.publish(0, 6)
    rows: list[dict[str, Any]] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        rows.extend(row.asDict() for row in batch.select("bookmark", "lease").collect())

    writer = home.stream(ackMode="explicit").writeStream.foreachBatch(note).option("checkpointLocation", home.checkpoint())
    writer.trigger(availableNow=True).start().awaitTermination()
    # A Spark before 4.2 tells nobody but its checkpoint that the batch is committed.
    home.journal.prove(home.checkpoint())
    assert home.figures() == (0, 6, 0)
    settled = home.journal.queue("WORK").settle(rows[:4])
    assert (settled.acknowledged, home.figures()) == (4, (0, 2, 4))


def test_wrapper_on_an_explicit_query_is_refused_by_name(make_home: MakeHome) -> None:
    home = make_home()
    home.publish(0, 2)
    with pytest.raises(Exception, match="ACK_MODE_MISMATCH.*foreach_batch"):
        home.run(Seen(), options={"ackMode": "explicit"})


def test_at_most_once_delivers_to_one_run_only(make_home: MakeHome) -> None:
    """The grant removes; only the first planner start that asks gets the rows, however often Spark runs the batch again."""
    home = make_home(semantics="at-most-once")
    home.publish(0, 6)
    seen = Seen()

    def fail_once(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        if len(seen.batches) == 1:
            raise RuntimeError("the sink is down")

    with pytest.raises(Exception, match="the sink is down"):
        home.run(fail_once)
    home.publish(6, 2)
    home.run_on(fail_once)
    # Batch 0 comes again without rows, which the function does not see.
    assert seen.batches == [(0, list(range(6))), (1, [6, 7])]


@pytest.mark.delta
def test_a_sink_that_merges_on_the_bookmark_takes_each_message_once(make_home: MakeHome) -> None:
    """R20, R21: a run that dies after its sink was written comes again, and what the sink knows is not done twice."""
    home = make_home()
    home.publish(0, 10)
    sink = str(home.home / "sink")
    home.spark.createDataFrame([], "id BIGINT, bookmark BIGINT").write.format("delta").save(sink)
    runs: list[int] = []

    def book(batch: DataFrame, batch_id: int) -> None:
        batch.select("id", "bookmark").createOrReplaceTempView("arrived")
        merge = f"MERGE INTO delta.`{sink}` s USING arrived a ON s.bookmark = a.bookmark WHEN NOT MATCHED THEN INSERT *"
        batch.sparkSession.sql(merge)
        runs.append(batch_id)
        if len(runs) == 1:
            raise RuntimeError("killed after the sink was written")

    with pytest.raises(Exception, match="killed after the sink was written"):
        home.run(book)
    home.run_on(book)
    assert len(runs) > 1
    booked = home.spark.read.format("delta").load(sink).select("id")
    assert_df_equality(booked, home.spark.range(10), ignore_nullable=True, ignore_row_order=True)
    assert home.figures() == (0, 0, 10)
