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
    outcomes = pa.table(
        {"bookmark": wrong.column("bookmark").combine_chunks(), "outcome": pa.array(["expire"] * len(wrong), pa.string())}
    )
    return batch.without(exceptions_of), outcomes


@pytest.mark.drawn(2)
@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("fn", [None, without_wrong_ones])
def test_each_row_stands_in_the_table_once_though_every_checkpoint_is_lost(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fn: Any, *, available_now: bool
) -> None:
    """Each start begins without an offset, and dies at another point; barriers wait for what stands before them."""
    chance, table = random.Random(f"{fn} {available_now}"), str(tmp_path / "sink")
    values = [{"n": number, **({"barrier": True} if number % 40 == 39 else {})} for number in range(MESSAGES)]
    with journal.publisher("p") as publisher:
        for first in range(0, MESSAGES, 12):
            publisher.publish([{"value": json.dumps(value)} for value in values[first : first + 12]], topic="T")
    arguments: dict[str, Any] = {"queue": "WORK", "subscription": "s", "message_type": "json", "table": table, "rows": PER_BATCH}
    for turn in range(TURNS):
        stream = SparklessStream(journal.store, journal.journal_id(), **arguments, fn=fn, available_now=available_now)
        for _ in range(chance.randint(0, 1)):
            stream.batch(wait_ms=0)
        with dying(monkeypatch, POINTS[turn % len(POINTS)]), suppress(DiedError):
            stream.batch(wait_ms=0)
        stream.die()
    stream = SparklessStream(journal.store, journal.journal_id(), **arguments, fn=fn)
    wait_until(lambda: not stream.batch() and journal.queue("WORK").status().queue_depth == 0, lambda: "messages are left")
    stream.end()
    found = [json.loads(str(value)) for value in DeltaTable(table).to_pyarrow_table().column("value").to_pylist()]
    wanted = [value for value in values if "barrier" not in value and (fn is None or value["n"] % 7 != 3)]
    assert sorted(value["n"] for value in found) == [value["n"] for value in wanted]
    status = journal.queue("WORK").status()
    assert status.acknowledged + status.dead_letters == MESSAGES - sum("barrier" in value for value in values)
    assert journal.queue("WORK").attempts_in_doubt() == ()
