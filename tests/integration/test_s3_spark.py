"""A journal in an object store, consumed by real Spark: executors read it by the options of the journal (DESIGN 15.14)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality

from spark_queue import Journal
from spark_queue.journal.open import open_journal
from tests.integration.coordinator_world import wait_for_end
from tests.integration.s3_server import BUCKET, SECRET, s3_options, s3_server
from tests.integration.source_journal import Seen, SourceJournal, definitions, running, wait_until
from tests.records import detail_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as server:
        yield server.endpoint


@pytest.fixture
def options(endpoint: str) -> dict[str, str]:
    """Return the options of a read or write."""
    return {f"storage.{name}": value for name, value in s3_options(endpoint).items()}


@pytest.fixture
def home(endpoint: str, spark: SparkSession, tmp_path: Path) -> Iterator[SourceJournal]:
    path = f"s3://{BUCKET}/{tmp_path.name}"
    home = SourceJournal(Journal.create(path, definitions(), storage_options=s3_options(endpoint)), tmp_path / "home", spark)
    yield home
    home.close()


def coordinator_pid(home: SourceJournal) -> int:
    claims = [record for record in open_journal(home.journal.store).records() if record.kind == "epoch_claimed"]
    return int(detail_of(claims[-1])["pid"])


def files_below(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}


def test_a_dataframe_is_published_and_consumed_and_nothing_that_is_kept_holds_the_secret(
    home: SourceJournal, options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(number, f"item {number}") for number in range(300)]
    frame = home.spark.createDataFrame(rows, "id BIGINT, item STRING").coalesce(1)
    frame.write.format("sparkqueue").options(**options).option("topic", "ORDERS").mode("append").save(home.journal.path)
    seen = Seen()
    shown: list[str] = []

    def look(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        batch.explain(extended=True)

    queries = home.run_on(look, options={"maxBacklog": 120, **options})
    shown += [progress.json for query in queries for progress in query.recentProgress]
    shown += [capsys.readouterr().out, str(queries[0].id)]
    assert [len(ids) for _, ids in seen.batches] == [120, 120, 60]
    assert sorted(seen.ids) == list(range(300))
    assert home.figures() == (0, 0, 300)
    kept = files_below(Path(home.checkpoint()))
    assert any("/offsets/" in path for path in kept)
    assert "Physical Plan" in "".join(shown)
    assert not [text for text in [*kept.values(), *shown] if SECRET in text]


def test_a_coordinator_killed_inside_fn_is_recovered_and_the_batch_is_proven(home: SourceJournal, options: dict[str, str]) -> None:
    home.publish(0, 40)
    seen = Seen()

    def kill_once(batch: DataFrame, batch_id: int) -> None:
        if not seen.batches:
            pid = coordinator_pid(home)
            os.kill(pid, signal.SIGKILL)
            wait_for_end(pid)
        seen(batch, batch_id)

    home.run_on(kill_once, options={"maxBacklog": 20, **options})
    assert seen.ids == list(range(40))
    assert home.figures() == (0, 0, 40)
    assert len(home.history("epoch_claimed")) == 2


def has_seen(seen: Seen, rows: int) -> bool:
    return len(seen.ids) >= rows


def test_a_running_stream_gets_what_is_published_to_the_bucket_meanwhile(home: SourceJournal, options: dict[str, str]) -> None:
    seen = Seen()
    with running(home.start(seen, options=options)) as query:
        for first in (0, 10, 20):
            home.publish(first, 10)
            wait_until(partial(has_seen, seen, first + 10), query)
    assert sorted(seen.ids) == list(range(30))


def test_topic_and_views_are_read_from_the_bucket(home: SourceJournal, options: dict[str, str]) -> None:
    home.publish(0, 30)
    reader = home.spark.read.format("sparkqueue").options(**options)
    topic = reader.option("topic", "ORDERS").load(home.journal.path)
    assert_df_equality(topic.select("id"), home.spark.range(30), ignore_nullable=True, ignore_row_order=True)
    view = home.spark.read.format("sparkqueue").options(**options).option("queue", "WORK").load(home.journal.path)
    assert {row["state"] for row in view.collect()} == {"available"}
    assert view.count() == 30


@pytest.mark.parametrize("read", ["stream", "batch"])
def test_an_option_that_no_store_of_its_kind_knows_is_refused_at_load(
    home: SourceJournal, options: dict[str, str], read: str
) -> None:
    """By name, and before anything is read (DESIGN 15.14)."""
    given = {**options, "storage.aws_regoin": "eu-1"}
    reader = home.spark.readStream if read == "stream" else home.spark.read
    of = {"queue": "WORK", "subscription": "s"} if read == "stream" else {"topic": "ORDERS"}
    with pytest.raises(Exception, match="STORAGE_OPTION_UNSUPPORTED.*aws_regoin") as caught:
        reader.format("sparkqueue").options(**given, **of).load(home.journal.path)
    assert SECRET not in str(caught.value)
