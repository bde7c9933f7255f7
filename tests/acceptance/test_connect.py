"""Spark Connect: the client has neither JVM nor fn's process; what a queue needs of Spark goes through the server (DESIGN 7)."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from tests.acceptance import connect_client as client
from tests.acceptance.conftest import MakeJournal

pytestmark = pytest.mark.spark

#: One story, the server's start included; reached only when something hangs.
STORY_S = 240

Story = Callable[..., Any]

DEFINITIONS = {
    "message_types": {"order": {"columns": "id BIGINT, item STRING", "topics": [client.TOPIC, client.COPIES]}},
    "queues": {client.QUEUE: {"underlying_topic": client.TOPIC}, client.COPIES: {}},
}


@pytest.fixture(scope="module")
def session(forked_pythons: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Yield what runs a story in the client's process."""
    pytest.importorskip("grpc", reason="a client of Spark Connect needs grpcio (pip install 'pyspark[connect]')")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        home = str(tmp_path_factory.mktemp("server"))
        assert pool.submit(client.start, home, forked_pythons).result(STORY_S).startswith("pyspark.sql.connect.")
        yield lambda story, *arguments: pool.submit(story, *arguments).result(STORY_S)
        pool.submit(client.stop).result(STORY_S)


@pytest.fixture
def journal(make_journal: MakeJournal) -> Journal:
    return make_journal(DEFINITIONS)


def test_a_wrapped_function_runs_at_the_server_and_each_row_gets_its_own_outcome(
    session: Story, journal: Journal, tmp_path: Path
) -> None:
    """The server tells fn no query id and no listener, so the proof comes with the planner's next call."""
    session(client.publish, journal.path, 100)
    session(client.consume, journal.path, str(tmp_path / "seen"))
    batches = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert batches == [list(range(60)), list(range(60, 100))]
    status = journal.queue(client.QUEUE).status()
    assert (status.available, status.backlog, status.acknowledged, status.expired) == (0, 0, 90, 10)
    assert journal.view("dead_letters", queue=client.QUEUE).column("bookmark").to_pylist() == list(range(0, 100, 10))


def test_batches_are_appended_to_a_table_by_the_commits_that_acknowledge_them(
    session: Story, journal: Journal, tmp_path: Path
) -> None:
    for begin in (0, 30):
        session(client.publish, journal.path, 30)
        session(client.append, journal.path, str(tmp_path / "booked"))
        table = DeltaTable(str(tmp_path / "booked")).to_pyarrow_table()
        assert sorted(row["id"] for row in table.to_pylist()) == sorted([*range(30)] * (1 + (begin > 0)))
        assert journal.queue(client.QUEUE).attempts_in_doubt() == ()
    # No listener runs in the server: the proof of a stream's last batch comes as it asks for the next one.
    assert journal.queue(client.QUEUE).status().acknowledged == 60
    refusal = session(client.merge, journal.path, str(tmp_path / "booked"))
    assert "BAD_VALUE" in refusal
    assert "nothing with Spark Connect" in refusal


def test_what_fn_raises_reaches_the_client_and_the_batch_runs_again(session: Story, journal: Journal, tmp_path: Path) -> None:
    session(client.publish, journal.path, 30)
    assert "the sink of batch 0 is down" in session(client.fail, journal.path)
    assert journal.queue(client.QUEUE).status().acknowledged == 0
    session(client.consume, journal.path, str(tmp_path / "seen"))
    bookmarks = {bookmark for line in (tmp_path / "seen").read_text().splitlines() for bookmark in json.loads(line)}
    assert bookmarks == set(range(30))
    assert journal.queue(client.QUEUE).status().acknowledged == 27


def test_a_client_settles_by_hand_and_reads_views(session: Story, journal: Journal) -> None:
    session(client.publish, journal.path, 40)
    assert session(client.consume_by_hand, journal.path) == 40
    (status,) = session(client.view, journal.path)
    assert (status["available"], status["backlog"], status["acknowledged"]) == (0, 0, 40)


def test_a_stream_publishes_each_micro_batch_once(session: Story, journal: Journal) -> None:
    session(client.publish, journal.path, 25)
    for _ in range(2):
        session(client.copy, journal.path)
        assert journal.queue(client.COPIES).status().entered == 25
