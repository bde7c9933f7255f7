"""Spark over merged and retired message files: Delta's own reader, topics, and a queue's stream that runs meanwhile (DESIGN 4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from chispa import assert_df_equality

from spark_queue.core import folds
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.message_compaction import MergeLimits, merge
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.open import open_journal
from tests.integration.source_journal import MakeHome, Seen, SourceJournal, definitions, running, wait_until


def segments_of(home: SourceJournal) -> MessageTypeState:
    journal = open_journal(home.journal.store)
    state = JournalState(journal.traits)
    folds.fold_all(state, journal.records())
    return state.message_types["order"]


def work_on(home: SourceJournal) -> MessageTableWork:
    """Open the table as the coordinator that serves now."""
    epoch = max((record.epoch for record in open_journal(home.journal.store).records()), default=0)
    journal_id = home.journal.journal_id()
    return MessageTableWork(home.journal.store, journal_id, "order", epoch=epoch, now_ms=0, is_durable=lambda: False)


@pytest.mark.spark
@pytest.mark.delta
def test_a_running_stream_and_deltas_reader_see_each_row_once_while_files_are_merged(make_home: MakeHome) -> None:
    home = make_home()
    seen = Seen()
    for number in range(5):
        home.publish(number * 3, 3)
    with running(home.start(seen)) as query:
        wait_until(lambda: len(seen.ids) == 15, query)
        merge(work_on(home), segments_of(home).segments, MergeLimits(files_min=5))
        home.publish(15, 3)
        wait_until(lambda: len(seen.ids) == 18, query)
    assert sorted(seen.ids) == list(range(18))
    assert [segment.merged for segment in segments_of(home).segments] == [True] * 5 + [False]
    table = home.spark.read.format("delta").load(str(Path(home.journal.path) / "messages" / "order"))
    assert_df_equality(table.select("id"), home.spark.range(18), ignore_nullable=True, ignore_row_order=True)
    topic = home.spark.read.format("sparkqueue").option("topic", "ORDERS").load(home.journal.path)
    numbers = home.spark.range(18).selectExpr("id AS bookmark", "id")
    assert_df_equality(topic.select("bookmark", "id"), numbers, ignore_nullable=True, ignore_row_order=True)


@pytest.mark.spark
def test_topic_reads_below_what_is_kept_fail_by_name_or_begin_there(make_home: MakeHome) -> None:
    home = make_home()
    seen = Seen()
    home.publish(0, 3)
    home.run(seen)
    home.run(seen)
    home.publish(3, 3)
    home.journal.apply({**definitions(), "journal": {"retention": "1ms"}})
    wait_until(lambda: bool(home.history("retired")))
    reader = home.spark.read.format("sparkqueue").option("topic", "ORDERS").option("startingBookmark", 1)
    with pytest.raises(Exception, match="MESSAGES_RETIRED.*kept after them is 3"):
        reader.load(home.journal.path).collect()
    kept = reader.option("failOnDataLoss", "false").load(home.journal.path)
    assert_df_equality(kept.select("id"), home.spark.range(3, 6), ignore_nullable=True, ignore_row_order=True)
