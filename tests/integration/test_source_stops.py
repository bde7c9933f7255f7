"""What ends a run from outside is held against no message (R42, P3): Spark's real ways to end a query, its jobs and itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import waiting
from tests.integration.source_journal import MakeHome

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

#: More often than a message may be delivered here.
OFTEN = 3

#: A start on a busy machine; reached only when something hangs.
LONG_S = 300


class Held:
    """A batch function whose job, or which itself, is in the middle of its work until somebody ends it."""

    def __init__(self, folder: Path, *, in_python: bool = False, raises: Exception | None = None) -> None:
        self.began = folder / "began"
        self.goes_on = threading.Event()
        self._in_python = in_python
        self._raises = raises

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        began = self.began
        if self._in_python:
            began.touch()
            assert self.goes_on.wait(60)
            batch.count()
            return

        def wait(rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for each in rows:
                began.touch()
                threading.Event().wait(300)
                yield each

        try:
            batch.select("id").mapInPandas(wait, "id BIGINT").count()
        except Exception:
            if self._raises is not None:
                raise self._raises from None
            raise


def stop(query: StreamingQuery, held: Held) -> None:
    query.stop()


def stop_between_jobs(query: StreamingQuery, held: Held) -> None:
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    waiting.wait_until(lambda: not query.isActive)
    held.goes_on.set()
    stopping.join(60)


def cancel_its_jobs(query: StreamingQuery, held: Held) -> None:
    """Do as the page of Spark's does that ends a query's jobs."""
    active_context().cancelJobGroup(str(query.runId))


def interrupt(query: StreamingQuery, held: Held) -> None:
    """Do as Ctrl-C in a shell and Cancel in a notebook do."""
    active_context().cancelAllJobs()


def active_context() -> Any:
    from pyspark import SparkContext

    return SparkContext._active_spark_context


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        (stop, {}),
        (stop, {"raises": ValueError("the connection was closed")}),
        (stop_between_jobs, {"in_python": True}),
        (cancel_its_jobs, {}),
        (interrupt, {}),
    ],
)
def test_a_healthy_message_survives_any_number_of_stops(
    make_home: MakeHome, tmp_path: Path, ends: Callable[[StreamingQuery, Held], None], kind: dict[str, Any]
) -> None:
    """A deployment, or a Cancel, in the middle of a batch."""
    home = make_home(max_deliveries=2)
    home.publish(0, 1)
    for _ in range(OFTEN):
        held = Held(tmp_path, **kind)
        query = home.start(held)
        waiting.wait_until(held.began.exists, deadline_s=LONG_S)
        held.began.unlink()
        ends(query, held)
        _wait_for_end(query)
    deliveries: list[int] = []
    home.run(lambda batch, batch_id: deliveries.extend(row["delivery_count"] for row in batch.collect()))
    assert deliveries == [1]
    assert home.figures() == (0, 0, 1)
    assert home.journal.queue("WORK").status().alarm is None


def _wait_for_end(query: StreamingQuery) -> None:
    waiting.wait_until(lambda: not query.isActive, deadline_s=LONG_S)


def test_a_task_that_fails_is_held_against_its_message(make_home: MakeHome) -> None:
    home = make_home(max_deliveries=1)
    home.publish(0, 1)

    def fail(rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        raise ValueError("no price")

    def book(batch: DataFrame, batch_id: int) -> None:
        batch.select("id").mapInPandas(fail, "id BIGINT").count()

    with pytest.raises(Exception, match="no price"):
        home.run(book)
    # Its batch comes again without rows.
    home.run(book)
    (letter,) = home.journal.view("dead_letters", queue="WORK").to_pylist()
    assert "no price" in letter["error"]


def test_a_function_that_takes_a_row_for_granted_gets_past_a_failure(make_home: MakeHome) -> None:
    """A failed message goes back, so its batch comes again without rows; a start before the first message has none, too."""
    home = make_home(retry_backoff="1ms")
    calls: list[int] = []

    def first(batch: DataFrame, batch_id: int) -> None:
        row = batch.first()
        assert row is not None
        calls.append(row["id"])
        if len(calls) == 1:
            raise OSError("the sink was away for a moment")

    home.run(first)
    assert calls == []
    home.publish(0, 1)
    with pytest.raises(Exception, match="away for a moment"):
        home.run(first)
    home.publish(1, 1)
    home.run_on(first)
    assert sorted(calls[1:]) == [0, 1]
    assert home.figures() == (0, 0, 2)
