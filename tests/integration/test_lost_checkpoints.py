"""A stateless stream into a table may lose its checkpoint wherever it dies: the table knows what stands in it (R123 to R127)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from spark_queue.core import commands
from spark_queue.errors import CallerError
from spark_queue.sinks.table import SinkTable
from spark_queue.source.planner import QueuePlanner
from spark_queue.source.run_reporter import RunReporter
from tests.benchmarks.journals import kill_serving
from tests.sparkless_stream import SparklessRows, SparklessStream
from tests.waiting import wait_until

MESSAGES, PER_BATCH, TURNS = 240, 5, 40

#: Where the stream dies: right after it has done this.
POINTS = ("granted", "told its rows", "started", "staged", "prepared", "committed", "landed", "while its proof is under way")


class DiedError(BaseException):
    """The process of the stream is gone; nothing catches that."""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    queue = {"underlying_topic": "T", "barrier": "get_json_object(value, '$.barrier') IS NOT NULL"}
    definitions = {"message_types": {"json": {"topics": ["T"]}}, "queues": {"WORK": queue}}
    made = Journal.create(str(tmp_path / "journal"), definitions)
    yield made
    kill_serving(made)


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, point: str) -> Iterator[None]:
    """Let whoever gets to a point die there."""

    def after(act: Callable[..., Any], *, only: type | None = None) -> Callable[..., Any]:
        def died(*given: Any, **named: Any) -> Any:
            result = act(*given, **named)
            if only is None or only in given:
                raise DiedError
            return result

        return died

    places: dict[str, tuple[Any, str, type | None]] = {
        "granted": (QueuePlanner, "next", None), "told its rows": (QueuePlanner, "rows", None),
        "started": (RunReporter, "start", None), "staged": (SinkTable, "stage", None),
        "prepared": (RunReporter, "say", commands.Prepare),
        "committed": (SinkTable, "append", None), "landed": (RunReporter, "say", commands.Landed),
    }  # fmt: skip
    if point not in places:
        yield
        return
    place, name, only = places[point]
    with monkeypatch.context() as patch:
        patch.setattr(place, name, after(getattr(place, name), only=only))
        yield


def exceptions_of(rows: pa.Table) -> list[int]:
    """Return the places of those that are not appended, since they are wrong."""
    return [place for place, value in enumerate(rows.column("value").to_pylist()) if json.loads(str(value))["n"] % 7 == 3]


def without_wrong_ones(batch: Any, _batch_id: int) -> Any:
    assert isinstance(batch, SparklessRows)
    rows = batch.toArrow()
    wrong = rows.take(pa.array(exceptions_of(rows), pa.int64()))
    return batch.without(exceptions_of), outcomes_of(wrong, "expire")


def first_given_back() -> Any:
    """Return a batch function that gives messages back when it sees them first; it remembers them from one start to the next."""
    seen: set[int] = set()

    def given_back(batch: Any, _batch_id: int) -> Any:
        assert isinstance(batch, SparklessRows)
        rows = batch.toArrow()
        numbers = [json.loads(str(value))["n"] for value in rows.column("value").to_pylist()]
        places = [place for place, number in enumerate(numbers) if number % 11 == 5 and number not in seen]
        seen.update(numbers)
        return batch.without(lambda _: places), outcomes_of(rows.take(pa.array(places, pa.int64())), "cancel")

    return given_back


def outcomes_of(rows: pa.Table, outcome: str) -> pa.Table:
    return pa.table({"bookmark": rows.column("bookmark").combine_chunks(), "outcome": pa.array([outcome] * len(rows), pa.string())})


@pytest.mark.drawn(1)
@pytest.mark.parametrize("trigger", ["as they come", "available now", "once"])
@pytest.mark.parametrize("outcomes", ["acknowledge", "expire", "cancel"])
def test_each_row_stands_in_the_table_once_though_every_checkpoint_is_lost(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: str, trigger: str
) -> None:
    """Each start begins without an offset, and dies at another point; barriers wait for what stands before them.

    A run of trigger Once takes one batch, and asks for no other: what it has finished, only a listener tells, or nobody.
    """
    chance, table = random.Random(f"{outcomes} {trigger}"), str(tmp_path / "sink")
    fn = {"acknowledge": None, "expire": without_wrong_ones, "cancel": first_given_back()}[outcomes]
    values = [{"n": number, **({"barrier": True} if number % 40 == 39 else {})} for number in range(MESSAGES)]
    with journal.publisher("p") as publisher:
        for first in range(0, MESSAGES, 12):
            publisher.publish([{"value": json.dumps(value)} for value in values[first : first + 12]], topic="T")
    arguments: dict[str, Any] = {"queue": "WORK", "subscription": "s", "message_type": "json", "table": table, "rows": PER_BATCH}
    for turn in range(TURNS):
        stream = SparklessStream(journal.store, journal.journal_id(), **arguments, fn=fn, available_now=trigger == "available now")
        for _ in range(0 if trigger == "once" else chance.randint(0, 1)):
            stream.batch(wait_ms=0)
        with dying(monkeypatch, POINTS[turn % len(POINTS)]), suppress(DiedError):
            stream.batch(wait_ms=0)
        stream.die()

    stream = SparklessStream(journal.store, journal.journal_id(), **arguments, fn=fn)
    wait_until(
        lambda: not stream.batch() and journal.queue("WORK").status().queue_depth == 0,
        lambda: f"messages are left: {journal.queue('WORK').status()}",
    )
    stream.end()
    found = [json.loads(str(value)) for value in DeltaTable(table).to_pyarrow_table().column("value").to_pylist()]
    wanted = [value for value in values if "barrier" not in value and (outcomes != "expire" or value["n"] % 7 != 3)]
    assert sorted(value["n"] for value in found) == [value["n"] for value in wanted]
    status = journal.queue("WORK").status()
    assert status.acknowledged + status.dead_letters == MESSAGES - sum("barrier" in value for value in values)
    assert journal.queue("WORK").attempts_in_doubt() == ()


def test_an_at_most_once_queue_is_refused_before_a_message_leaves_it(tmp_path: Path) -> None:
    """Its messages would be gone with the batch that is refused."""
    queue = {"underlying_topic": "T", "semantics": "at-most-once"}
    definitions = {"message_types": {"json": {"topics": ["T"]}}, "queues": {"WORK": queue}}
    journal = Journal.create(str(tmp_path / "journal"), definitions)
    try:
        journal.publish([{"value": json.dumps({"n": number})} for number in range(MESSAGES)], topic="T")

        def run() -> None:
            stream = SparklessStream(
                journal.store, journal.journal_id(), queue="WORK", subscription="s", message_type="json",
                table=str(tmp_path / "sink"), rows=PER_BATCH,
            )  # fmt: skip
            stream.batch()

        with pytest.raises(CallerError, match="UNSUPPORTED_WRITE.*delivers at most once"):
            run()
        assert journal.queue("WORK").status().queue_depth == MESSAGES
    finally:
        kill_serving(journal)
    assert not DeltaTable.is_deltatable(str(tmp_path / "sink"))
