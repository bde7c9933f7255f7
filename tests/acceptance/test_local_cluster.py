"""Real executor processes: what crosses to them from the driver, retries of tasks, an executor that dies in read (DESIGN 13)."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import cluster
from tests.acceptance.conftest import MakeJournal

pytestmark = [pytest.mark.slow, pytest.mark.spark]

#: One story on the cluster, its start included; reached only when something hangs.
STORY_S = 240

Story = Callable[..., Any]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Yield what runs a story in the driver process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(cluster.start, str(tmp_path_factory.mktemp("spark"))).result(STORY_S)
        yield lambda story, *arguments, **options: pool.submit(story, *arguments, **options).result(STORY_S)
        pool.submit(cluster.stop).result(STORY_S)


def definitions(**queue: Any) -> dict[str, Any]:
    return {
        "message_types": {"order": {"columns": "id BIGINT, item STRING", "topics": [cluster.TOPIC]}},
        "queues": {cluster.QUEUE: {"underlying_topic": cluster.TOPIC, **queue}},
    }


def test_executors_stage_and_read_and_each_row_gets_its_own_outcome(driver: Story, make_journal: MakeJournal) -> None:
    journal = make_journal(definitions())
    driver(cluster.publish, journal.path, 1_000)
    sight = driver(cluster.consume, journal.path, max_backlog=600)
    assert not sight.failure
    assert sight.batches == [list(range(600)), list(range(600, 1_000))]
    # Both executors worked: two processes, each with a daemon of its own.
    assert len({pid for pids in sight.executors for pid in pids}) == 2
    status = journal.queue(cluster.QUEUE).status()
    assert (status.available, status.backlog, status.acknowledged, status.expired) == (0, 0, 900, 100)
    letters = journal.view("dead_letters", queue=cluster.QUEUE)
    assert letters.column("bookmark").to_pylist() == list(range(0, 1_000, 10))
    assert set(letters.column("error").to_pylist()) == {"every tenth"}


def test_a_commit_of_many_executors_numbers_every_row_once(driver: Story, make_journal: MakeJournal) -> None:
    journal = make_journal(definitions())
    driver(cluster.publish, journal.path, 1_000)
    messages = journal.view("messages", queue=cluster.QUEUE)
    assert messages.num_rows == 1_000
    assert set(messages.column("id").to_pylist()) == set(range(1_000))
    assert set(messages.column("bookmark").to_pylist()) == set(range(1_000))
    assert len(list((Path(journal.path) / "messages" / "order").glob("*.parquet"))) == 4


def test_at_most_once_reads_again_in_a_task_retry_and_never_in_another_run(driver: Story, make_journal: MakeJournal) -> None:
    """Retries are inside the run of a micro-batch; a later run of the same batch reads nothing (DESIGN 7, at-most-once)."""
    journal = make_journal(definitions(semantics="at-most-once"))
    driver(cluster.publish, journal.path, 100)
    sight = driver(cluster.consume_with_task_retries, journal.path)
    assert not sight.failure
    assert sight.batches == [list(range(100))]
    driver(cluster.publish, journal.path, 50)
    failed = driver(cluster.consume_and_fail, journal.path)
    assert "the sink is down" in failed.failure
    assert failed.batches == [list(range(100, 150))]
    again = driver(cluster.consume_with_task_retries, journal.path)
    assert not again.failure
    assert [bookmark for batch in again.batches for bookmark in batch] == []
    assert journal.queue(cluster.QUEUE).status().available == 0


def test_an_executor_killed_in_read_is_replaced_and_the_batch_is_whole(
    driver: Story, make_journal: MakeJournal, tmp_path: Path
) -> None:
    journal = make_journal(definitions())
    driver(cluster.publish, journal.path, cluster.ROWS)
    victim = tmp_path / "victim"
    sight = driver(cluster.consume_and_lose_an_executor, journal.path, str(victim))
    assert not sight.failure
    assert "CoarseGrainedExecutorBackend" in victim.read_text()
    assert sight.batches == [list(range(cluster.ROWS))]
    # The same lease, read again by another process: no second delivery.
    assert sight.deliveries == [1]
    status = journal.queue(cluster.QUEUE).status()
    assert (status.available, status.backlog, status.acknowledged) == (0, 0, cluster.ROWS)
